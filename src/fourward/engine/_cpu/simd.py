"""Vector code that Numba doesn't generate from loops: sums that stay in registers along a run of edges.

Written as LLVM vectors of 64 bytes, a *lane group*: 16 float32 or 8 float64. LLVM splits them where the processor's
registers are narrower. A plain Numba loop keeps its sums in memory, at half the speed (N=1024, p=0.2, B=512 on 2 cores:
75 GFLOP/s, these 128).

Rejected: prefetching the rows of later edges in `add_run`. It gained 15% with 10^7 edges and lost 40% at N=1024, B=32;
kernels prefetch the rows of later nodes instead, where rows don't fit the cache.
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


@intrinsic(prefer_literal=True)
def prefetch_row(typingctx: Any, row: Any, width: Any) -> Any:
    """Ask for the lines of a row, which will be read soon."""
    if not isinstance(width, types.IntegerLiteral):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        row = builder.bitcast(args[0], byte)
        for start in range(0, width.literal_value * signature.args[0].dtype.bitwidth // 8, 64):
            address = builder.gep(row, [ir.Constant(_I64, start)])
            builder.call(prefetch, [address, *(ir.Constant(_I32, i) for i in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(row, width), codegen


@intrinsic
def is_given(typingctx: Any, base: Any) -> Any:
    """Whether a pointer isn't null."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.is_not_null(builder, args[0])

    return types.boolean(base), codegen


@intrinsic
def offset_given(typingctx: Any, base: Any, count: Any) -> Any:
    """The pointer `count` elements after base, or null where base is."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(cgutils.is_null(builder, args[0]), args[0], builder.gep(args[0], [args[1]]))

    return base(base, types.int64), codegen


class _Rows:
    """Rows of `width` numbers, a power of 2, as LLVM vectors: of a lane group each, or of the width if that is less."""

    def __init__(self, context: Any, builder: Any, element: Any, width: int) -> None:
        self.builder, self.bytes = builder, element.bitwidth // 8
        lanes = min(width, LANE_GROUP_BYTES // self.bytes)
        self.vector = ir.VectorType(context.get_value_type(element), lanes)
        self.count = width // lanes  #: vectors of a row
        self.zero = ir.Constant(self.vector, [0.0] * lanes)
        name = f"llvm.fma.v{lanes}f{element.bitwidth}"
        self._fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(self.vector, [self.vector] * 3), name
        )

    def _address(self, row: Any, i: int) -> Any:
        element = self.builder.gep(row, [ir.Constant(_I64, self.vector.count * i)])
        return self.builder.bitcast(element, self.vector.as_pointer())

    def load(self, row: Any, i: int) -> Any:
        """The i-th vector of a row."""
        value = self.builder.load(self._address(row, i))
        value.align = self.bytes
        return value

    def store(self, value: Any, row: Any, i: int) -> None:
        """Write the i-th vector of a row."""
        self.builder.store(value, self._address(row, i)).align = self.bytes

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """X * y + z."""
        return self.builder.call(self._fma, [x, y, z])

    def row(self, rows: Any, index: Any, k: Any) -> Any:
        """The row index[k]."""
        number = self.builder.sext(self.builder.load(self.builder.gep(index, [k])), _I64)
        return self.builder.gep(rows, [self.builder.mul(number, ir.Constant(_I64, self.count * self.vector.count))])

    def start(self, row: Any, begin: Any, value: Any) -> list[Any]:
        """The vectors of a row, or where `begin` is set, a value in all lanes."""
        builder, before = self.builder, self.builder.block
        reading, ready = builder.append_basic_block("reading"), builder.append_basic_block("ready")
        first = broadcast(builder, self.vector, value)
        builder.cbranch(cgutils.is_true(builder, begin), ready, reading)
        builder.position_at_end(reading)
        vectors = [self.load(row, i) for i in range(self.count)]
        builder.branch(ready)
        builder.position_at_end(ready)
        phis = [builder.phi(self.vector) for _ in vectors]
        for phi, vector in zip(phis, vectors, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(vector, reading)
        return phis


def broadcast(builder: Any, vector: Any, value: Any) -> Any:
    """A number in all lanes of a vector."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, undefined, zeros)


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


def _unrolled_end(builder: Any, first: Any, last: Any, unroll: int) -> Any:
    """Where the last whole group of `unroll` edges ends."""
    size = builder.sub(last, first)
    return builder.add(first, builder.and_(size, ir.Constant(_I64, -unroll)))


@intrinsic(prefer_literal=True)
def add_run(
    typingctx: Any, row: Any, begin: Any, value: Any, weight: Any, index: Any, rows: Any, first: Any, last: Any,
    width: Any,
) -> Any:  # fmt: skip
    """Add to a row the sum over k in first:last of weight[k] * rows[index[k]]; if `begin`, to a row of `value`.

    The row, of `width` numbers, stays in registers throughout.
    """
    if not isinstance(width, types.IntegerLiteral):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row, begin, value, weight, index, rows, first, last, _ = args
        r = _Rows(context, builder, signature.args[0].dtype, width.literal_value)
        unroll = max(
            1, 4 // r.count
        )  # an addition takes 4 cycles: short rows need several sums to keep the adders busy

        def add_edge(k: Any, sums: list[Any]) -> list[Any]:
            """The sums with edge k added."""
            w = broadcast(builder, r.vector, builder.load(builder.gep(weight, [k])))
            other = r.row(rows, index, k)
            return [r.fma(w, r.load(other, i), total) for i, total in enumerate(sums)]

        sums, k = r.start(row, begin, value), first
        if unroll > 1:
            k = _unrolled_end(builder, first, last, unroll)
            parts = [*sums, *[r.zero] * (r.count * (unroll - 1))]

            def step(k: Any, parts: list[Any]) -> list[Any]:
                new = []
                for j in range(unroll):
                    new += add_edge(builder.add(k, ir.Constant(_I64, j)), parts[j * r.count : (j + 1) * r.count])
                return new

            parts = _loop(builder, first, k, unroll, parts, step)
            sums = parts[: r.count]
            for j in range(1, unroll):
                sums = [builder.fadd(total, parts[j * r.count + i]) for i, total in enumerate(sums)]
        for i, total in enumerate(_loop(builder, k, last, 1, sums, add_edge)):
            r.store(total, row, i)
        return context.get_dummy_value()

    integers = (types.int64, types.int64, width)
    return types.void(row, types.boolean, value, weight, index, rows, *integers), codegen


def _lane_sums(builder: Any, vectors: list[Any]) -> Any:
    """A vector with the sum of the lanes of each of the vectors; their number is a power of 2, and at most the lanes.

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
def add_and_dot_run(
    typingctx: Any, row: Any, begin: Any, value: Any, own: Any, weight: Any, index: Any, rows: Any, dots: Any,
    first: Any, last: Any, width: Any,
) -> Any:  # fmt: skip
    """`add_run`, and dots[k] += the inner product of the row `own` and rows[index[k]], which is read only once."""
    if not isinstance(width, types.IntegerLiteral):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row, begin, value, own, weight, index, rows, dots, first, last, _ = args
        r = _Rows(context, builder, signature.args[0].dtype, width.literal_value)
        factors = [r.load(own, i) for i in range(r.count)]  # stay in registers

        def edge(k: Any, sums: list[Any]) -> tuple[list[Any], Any]:
            """The sums with edge k added; and a vector whose lanes sum up to the inner product."""
            w = broadcast(builder, r.vector, builder.load(builder.gep(weight, [k])))
            other, new, products = r.row(rows, index, k), [], [r.zero, r.zero]  # two: neither waits for the other
            for i, total in enumerate(sums):
                vector = r.load(other, i)
                new.append(r.fma(w, vector, total))
                products[i % 2] = r.fma(factors[i], vector, products[i % 2])
            return new, builder.fadd(*products) if r.count > 1 else products[0]

        def add(k: Any, value: Any) -> None:
            address = builder.bitcast(builder.gep(dots, [k]), value.type.as_pointer())
            before = builder.load(address)
            before.align = builder.store(builder.fadd(before, value), address).align = r.bytes

        unroll = min(8, r.vector.count)

        def several_edges(k: Any, sums: list[Any]) -> list[Any]:
            products = []
            for j in range(unroll):
                sums, product = edge(builder.add(k, ir.Constant(_I64, j)), sums)
                products.append(product)
            add(k, _lane_sums(builder, products))
            return sums

        def one_edge(k: Any, sums: list[Any]) -> list[Any]:
            sums, product = edge(k, sums)
            pair = _lane_sums(builder, [product, r.zero]) if unroll > 1 else product
            add(k, builder.extract_element(pair, ir.Constant(_I32, 0)))
            return sums

        sums, k = r.start(row, begin, value), first
        if unroll > 1:
            k = _unrolled_end(builder, first, last, unroll)
            sums = _loop(builder, first, k, unroll, sums, several_edges)
        for i, total in enumerate(_loop(builder, k, last, 1, sums, one_edge)):
            r.store(total, row, i)
        return context.get_dummy_value()

    integers = (types.int64, types.int64, width)
    return types.void(row, types.boolean, value, own, weight, index, rows, dots, *integers), codegen


@intrinsic(prefer_literal=True)
def push_run(
    typingctx: Any, own: Any, weight: Any, step: Any, rows: Any, slot: Any, grads: Any, dots: Any, add: Any, first: Any,
    last: Any, width: Any,
) -> Any:  # fmt: skip
    """Add weight[k] * own to the rows grads[slot[k]], for k in first:last, which are different ones.

    And dots[k] is set to the inner product of the rows `own` and rows[step[k]], or that is added to it if `add`.
    """
    if not isinstance(width, types.IntegerLiteral):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        own, weight, step, rows, slot, grads, dots, add, first, last, _ = args
        r = _Rows(context, builder, signature.args[0].dtype, width.literal_value)
        factors = [r.load(own, i) for i in range(r.count)]  # stay in registers
        adds = cgutils.is_true(builder, add)

        def push(edges: list[Any]) -> list[Any]:
            """For each edge a vector whose lanes sum up to the inner product."""
            targets = [r.row(grads, slot, k) for k in edges]
            weights = [broadcast(builder, r.vector, builder.load(builder.gep(weight, [k]))) for k in edges]
            sources = [r.row(rows, step, k) for k in edges]
            products = [r.zero] * len(edges)
            for i, factor in enumerate(factors):
                sums = [r.fma(w, factor, r.load(row, i)) for w, row in zip(weights, targets, strict=True)]
                for total, row in zip(sums, targets, strict=True):  # after all loads, which don't wait for them
                    r.store(total, row, i)
                products = [r.fma(factor, r.load(row, i), total) for row, total in zip(sources, products, strict=True)]
            return products

        def write(k: Any, value: Any) -> None:
            address = builder.bitcast(builder.gep(dots, [k]), value.type.as_pointer())
            before = builder.load(address)
            before.align = r.bytes
            total = builder.select(adds, builder.fadd(before, value), value)
            builder.store(total, address).align = r.bytes

        unroll = min(8, r.vector.count)

        def several_edges(k: Any, none: list[Any]) -> list[Any]:
            write(k, _lane_sums(builder, push([builder.add(k, ir.Constant(_I64, j)) for j in range(unroll)])))
            return none

        def one_edge(k: Any, none: list[Any]) -> list[Any]:
            (product,) = push([k])
            pair = _lane_sums(builder, [product, r.zero]) if unroll > 1 else product
            write(k, builder.extract_element(pair, ir.Constant(_I32, 0)))
            return none

        k = first
        if unroll > 1:
            k = _unrolled_end(builder, first, last, unroll)
            _loop(builder, first, k, unroll, [], several_edges)
        _loop(builder, k, last, 1, [], one_edge)
        return context.get_dummy_value()

    integers = (types.int64, types.int64, width)
    return types.void(own, weight, step, rows, slot, grads, dots, types.boolean, *integers), codegen


@intrinsic(prefer_literal=True)
def add_lanes(typingctx: Any, row: Any, total: Any, width: Any) -> Any:
    """Add the sum of a row to total[0]."""
    if not isinstance(width, types.IntegerLiteral):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row, total, _ = args
        r = _Rows(context, builder, signature.args[0].dtype, width.literal_value)
        value = r.load(row, 0)
        for i in range(1, r.count):
            value = builder.fadd(value, r.load(row, i))
        while value.type.count > 1:
            half = value.type.count // 2
            value = _halves(builder, value, value, list(range(half)), list(range(half, 2 * half)))
        lane = builder.extract_element(value, ir.Constant(_I32, 0))
        builder.store(builder.fadd(builder.load(total), lane), total)
        return context.get_dummy_value()

    return types.void(row, total, width), codegen


def for_each_group(
    context: Any, builder: Any, element: Any, width: Any, rows: list[Any], compute: Callable[..., Any]
) -> None:
    """rows[0] = compute(vector type, vectors of all rows), a lane group at a time; `width` is a power of 2.

    In a row of less than a lane group, its numbers are repeated, so that the same code serves all narrow widths.
    """
    lanes = LANE_GROUP_BYTES * 8 // element.bitwidth
    group = _Rows(context, builder, element, lanes)
    with builder.if_else(builder.icmp_signed(">=", width, ir.Constant(_I64, lanes))) as (wide, narrow):
        with wide:

            def one_group(first: Any, _: list[Any]) -> list[Any]:
                addresses = [builder.gep(row, [first]) for row in rows]
                value = compute(group.vector, [group.load(address, 0) for address in addresses])
                group.store(value, addresses[0], 0)
                return []

            _loop(builder, ir.Constant(_I64, 0), width, lanes, [], one_group)
        with narrow:
            _narrow_group(context, builder, element, width, rows, compute)


def _narrow_group(
    context: Any, builder: Any, element: Any, width: Any, rows: list[Any], compute: Callable[..., Any]
) -> None:
    """`for_each_group` for rows of less than a lane group."""
    lanes = LANE_GROUP_BYTES * 8 // element.bitwidth
    vector = _Rows(context, builder, element, lanes).vector
    sizes = [1 << i for i in range(lanes.bit_length() - 1)]
    parts = {size: _Rows(context, builder, element, size) for size in sizes}

    def choose(name: str, body: Callable[[int], Any]) -> list[tuple[Any, Any]]:
        """Run body(size) in the branch for the width; its values with the blocks that they come from."""
        blocks = {size: builder.append_basic_block(f"{name}{size}") for size in sizes}
        after, values = builder.append_basic_block(f"{name}_done"), []
        switch = builder.switch(width, blocks[1])
        for size, block in blocks.items():
            if size > 1:
                switch.add_case(ir.Constant(_I64, size), block)
            builder.position_at_end(block)
            values.append((body(size), builder.block))
            builder.branch(after)
        builder.position_at_end(after)
        return values

    def load(size: int) -> list[Any]:
        mask = ir.Constant(ir.VectorType(_I32, lanes), [j % size for j in range(lanes)])
        return [builder.shuffle_vector(v, v, mask) for v in (parts[size].load(row, 0) for row in rows)]

    loaded = choose("load", load)
    phis = [builder.phi(vector) for _ in rows]
    for vectors, block in loaded:
        for phi, value in zip(phis, vectors, strict=True):
            phi.add_incoming(value, block)
    result = compute(vector, phis)

    def store(size: int) -> None:
        mask = ir.Constant(ir.VectorType(_I32, size), list(range(size)))
        parts[size].store(builder.shuffle_vector(result, result, mask), rows[0], 0)

    choose("store", store)


@intrinsic
def take_next(typingctx: Any, counter: Any) -> Any:
    """The value of a counter that all threads advance by 1."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", args[0], ir.Constant(_I64, 1), "monotonic")

    return types.int64(counter), codegen


@intrinsic
def write_time(typingctx: Any, clock: Any, address: Any) -> Any:
    """Write what a clock says, a C function without arguments that returns a float64, to address[0], an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.DoubleType(), []).as_pointer()
        seconds = builder.call(builder.inttoptr(args[0], function), [])
        builder.store(builder.bitcast(seconds, _I64), args[1])
        return context.get_dummy_value()

    return types.void(types.int64, address), codegen


@intrinsic
def float64_from_bits(typingctx: Any, bits: Any) -> Any:
    """The float64 with these bits, an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen
