"""Vector code that Numba doesn't generate from loops: sums that stay in registers along a run of edges.

Written as LLVM vectors of 64 bytes, a *lane group*: 16 float32 or 8 float64. LLVM splits them where the processor's
registers are narrower. A plain Numba loop keeps its sums in memory, at half the speed (N=1024, p=0.2, B=512 on 2 cores:
75 GFLOP/s, these 128).

Rejected: prefetching the rows of later edges. It gained 15% with 10^7 edges and lost 40% at N=1024, B=32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANE_GROUP_BYTES = 64

_I32, _I64 = ir.IntType(32), ir.IntType(64)


@intrinsic
def pointer(typingctx: Any, address: Any, like: Any) -> Any:
    """The address, an int64, as a pointer to numbers of the type of `like`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(types.int64, like), codegen


@intrinsic
def cast_like(typingctx: Any, like: Any, value: Any) -> Any:
    """The value, a float64, in the type of `like`; Python's literals would turn float32 into float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[1], types.float64, signature.return_type)

    return like(like, types.float64), codegen


@intrinsic
def offset(typingctx: Any, base: Any, count: Any) -> Any:
    """The pointer `count` elements after base."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return base(base, types.int64), codegen


def _groups(context: Any, builder: Any, element: Any) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
    """The vector type of a lane group, and functions that load and store the i-th group of a row."""
    scalar = context.get_value_type(element)
    lanes = LANE_GROUP_BYTES * 8 // element.bitwidth
    vector = ir.VectorType(scalar, lanes)

    def address(row: Any, i: int) -> Any:
        return builder.bitcast(builder.gep(row, [ir.Constant(_I64, lanes * i)]), vector.as_pointer())

    def load(row: Any, i: int) -> Any:
        value = builder.load(address(row, i))
        value.align = element.bitwidth // 8
        return value

    def store(value: Any, row: Any, i: int) -> None:
        builder.store(value, address(row, i)).align = element.bitwidth // 8

    return vector, load, store


def _broadcast(builder: Any, vector: Any, value: Any) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, undefined, zeros)


def _fma(builder: Any, vector: Any) -> Callable[..., Any]:
    name = f"llvm.fma.v{vector.count}{'f32' if vector.element == ir.FloatType() else 'f64'}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    return lambda x, y, z: builder.call(function, [x, y, z])


def _loop(
    builder: Any, first: Any, last: Any, step: int, values: list[Any], body: Callable[..., list[Any]]
) -> list[Any]:
    """The values after body(k, values) for k from first to last; they stay in registers."""
    entry = builder.block
    loop, done = builder.append_basic_block("loop"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", first, last), loop, done)
    builder.position_at_end(loop)
    k = builder.phi(_I64)
    phis = [builder.phi(value.type) for value in values]
    new = body(k, phis)
    following = builder.add(k, ir.Constant(_I64, step))
    k.add_incoming(first, entry)
    k.add_incoming(following, builder.block)
    for phi, start, value in zip(phis, values, new, strict=True):
        phi.add_incoming(start, entry)
        phi.add_incoming(value, builder.block)
    end = builder.block
    builder.cbranch(builder.icmp_signed("<", following, last), loop, done)
    builder.position_at_end(done)
    results = [builder.phi(value.type) for value in values]
    for phi, start, value in zip(results, values, new, strict=True):
        phi.add_incoming(start, entry)
        phi.add_incoming(value, end)
    return results


@intrinsic(prefer_literal=True)
def add_run(typingctx: Any, row: Any, weight: Any, index: Any, rows: Any, first: Any, last: Any, groups: Any) -> Any:
    """Add to a row the sum over k in first:last of weight[k] * rows[index[k]], rows of `groups` lane groups each.

    The row stays in registers throughout.
    """
    if not isinstance(groups, types.IntegerLiteral):
        return None
    count, element = groups.literal_value, row.dtype
    unroll = max(1, 4 // count)  # an addition takes 4 cycles: short rows need several sums to keep the adders busy

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row, weight, index, rows, first, last, _ = args
        vector, load, store = _groups(context, builder, element)
        fma = _fma(builder, vector)
        stride = ir.Constant(_I64, count * vector.count)

        def add_edge(k: Any, sums: list[Any]) -> list[Any]:
            """The sums with edge k added."""
            w = _broadcast(builder, vector, builder.load(builder.gep(weight, [k])))
            u = builder.sext(builder.load(builder.gep(index, [k])), _I64)
            other = builder.gep(rows, [builder.mul(u, stride)])
            return [fma(w, load(other, i), total) for i, total in enumerate(sums)]

        sums = [load(row, i) for i in range(count)]
        k = first
        if unroll > 1:
            unrolled_end = builder.sub(last, builder.srem(builder.sub(last, first), ir.Constant(_I64, unroll)))
            zero = ir.Constant(vector, [0.0] * vector.count)
            parts = [*sums, *[zero] * (count * (unroll - 1))]

            def step(k: Any, parts: list[Any]) -> list[Any]:
                new = []
                for j in range(unroll):
                    new += add_edge(builder.add(k, ir.Constant(_I64, j)), parts[j * count : (j + 1) * count])
                return new

            parts = _loop(builder, first, unrolled_end, unroll, parts, step)
            for j in range(1, unroll):
                sums = parts[:count] if j == 1 else sums
                sums = [builder.fadd(total, parts[j * count + i]) for i, total in enumerate(sums)]
            k = unrolled_end
        sums = _loop(builder, k, last, 1, sums, add_edge)
        for i, value in enumerate(sums):
            store(value, row, i)
        return context.get_dummy_value()

    return types.void(row, weight, index, rows, types.int64, types.int64, groups), codegen


def _lane_sums(builder: Any, vectors: list[Any]) -> Any:
    """A vector with the sum of the lanes of each of the vectors, which are 2, 4 or 8.

    Adds them up in a tree, two vectors into one at each step: about 3 operations a vector, where each alone takes 8.
    """
    lanes, size = vectors[0].type.count, 1
    while len(vectors) > 1:
        near = [j if j % (2 * size) < size else j - size + lanes for j in range(lanes)]
        far = [j + size for j in near]
        vectors = [_halves(builder, x, y, near, far) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]
        size *= 2
    (total,) = vectors
    while total.type.count > size:
        half = total.type.count // 2
        total = _halves(builder, total, total, list(range(half)), list(range(half, 2 * half)))
    return total


def _halves(builder: Any, x: Any, y: Any, near: list[int], far: list[int]) -> Any:
    masks = [ir.Constant(ir.VectorType(_I32, len(mask)), mask) for mask in (near, far)]
    return builder.fadd(*(builder.shuffle_vector(x, y, mask) for mask in masks))


@intrinsic(prefer_literal=True)
def dot_run(typingctx: Any, row: Any, rows: Any, index: Any, result: Any, first: Any, last: Any, groups: Any) -> Any:
    """Add to result[k] the inner product of row and rows[index[k]], for k in first:last."""
    if not isinstance(groups, types.IntegerLiteral):
        return None
    count, element = groups.literal_value, row.dtype

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row, rows, index, result, first, last, _ = args
        vector, load, _ = _groups(context, builder, element)
        fma = _fma(builder, vector)
        zero = ir.Constant(vector, [0.0] * vector.count)
        stride = ir.Constant(_I64, count * vector.count)
        factors = [load(row, i) for i in range(count)]  # stay in registers

        def products(k: Any) -> Any:
            """A vector whose lanes sum up to the inner product for edge k."""
            u = builder.sext(builder.load(builder.gep(index, [k])), _I64)
            other = builder.gep(rows, [builder.mul(u, stride)])
            sums = [zero, zero]  # two, so that one sum need not wait for the other
            for i in range(count):
                sums[i % 2] = fma(factors[i], load(other, i), sums[i % 2])
            return builder.fadd(sums[0], sums[1]) if count > 1 else sums[0]

        def add(k: Any, value: Any) -> None:
            address = builder.bitcast(builder.gep(result, [k]), value.type.as_pointer())
            before = builder.load(address)
            before.align = builder.store(builder.fadd(before, value), address).align = element.bitwidth // 8

        def eight_edges(k: Any, _: list[Any]) -> list[Any]:
            add(k, _lane_sums(builder, [products(builder.add(k, ir.Constant(_I64, j))) for j in range(8)]))
            return []

        def one_edge(k: Any, _: list[Any]) -> list[Any]:
            pair = _lane_sums(builder, [products(k), zero])
            add(k, builder.extract_element(pair, ir.Constant(_I32, 0)))
            return []

        unrolled_end = builder.sub(last, builder.srem(builder.sub(last, first), ir.Constant(_I64, 8)))
        _loop(builder, first, unrolled_end, 8, [], eight_edges)
        _loop(builder, unrolled_end, last, 1, [], one_edge)
        return context.get_dummy_value()

    return types.void(row, rows, index, result, types.int64, types.int64, groups), codegen


@intrinsic
def take_job(typingctx: Any, buffer: Any) -> Any:
    """The index of the next job, from a counter at the start of the argument buffer that all threads advance."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", args[0], ir.Constant(_I64, 1), "monotonic")

    return types.int64(buffer), codegen


@intrinsic
def float64_from_bits(typingctx: Any, bits: Any) -> Any:
    """The float64 with these bits, an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen
