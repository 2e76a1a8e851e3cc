"""Forward kernels over tiles: 32 dependent steps per panel, the sums of a whole segment of panels in registers.

A program owns BLOCK_B samples and computes all panels of a segment, so programs depend on each other only through the
weights: in the same launch, the first programs pack the flat weights into dense tiles, and the others wait for them.

A lane holds the sum z of one neuron of each panel of the segment, for a sample. A step broadcasts one neuron's
activation to all lanes by a warp shuffle, and each lane adds its contribution to its sums: of the neuron's own panel
and of all later panels of the segment. The latency of a shuffle is several times that of the FMA that waits for it, so
with QUADS the sums of four neurons are broadcast at once, and each lane computes redundantly what the four contribute
to each other. Rows of tiles are read through shared memory, loaded 1-2 iterations ahead. Where a network has several
segments, the contributions of all earlier segments are products of tiles, spread over the GPU (a kernel of its own).

A tile multiplies activations by 0 where there is no edge, which is NaN for an infinite or NaN activation. So every sum
is checked, and a slice with a sum that isn't finite is recomputed edge by edge.

Layout of what the pointers point to (S slices, R rows: inputs then neurons, each filled up to whole blocks of 32):
    saved         (S, R, BLOCK_B) activations; where SAVE_Z, z in the same layout; then packed weights in the
                  accumulation dtype, 1024 per tile: `forward_slots` tiles (SEGMENT for each block); all `tiles` as
                  (source, target), where there are several segments or a backward pass follows; for that pass,
                  SEGMENT for each panel
    partials      (SPLIT_K, S, R, BLOCK_B) contributions of earlier segments
    packed_plan   int32: the fields of `packing.Shape`; an upper-case parameter is the offset of the field of that name
    table         the pointer table; its first two int64, as four int32, are counters that launches leave at 0:
                  packers that are done, programs that have waited, tickets, and one unused
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine._gpu.activations import activate
from fourward.engine._gpu.pointer_table import load_aligned_pointer, load_pointer, store_address
from fourward.engine._gpu.tile_ops import (
    RUNTIME,
    block_rows,
    decode_tile_edges,
    dropout_scales,
    is_nonfinite,
    load_edge_weights,
    load_partials,
    load_quad_weights,
    load_rows,
    load_tile_rows,
    load_tiles,
    packed_tiles,
    reduce_group,
    shift,
    slice_columns,
    split_range,
    take_column,
    take_quad,
    unstack,
)

# Slots of the pointer table.
_WEIGHT, _BIAS, _KEY, _OUT, _SAVED, _PARTIALS = (tl.constexpr(i) for i in range(6))


@triton.jit
def _pack_tiles(
    weight, packed, packed_plan, tiles, panels, forward_slots, num_empty_tiles, packer, packers,
    FORWARD_SLOT, BACKWARD_SLOT, EMPTY_SLOT, EDGE_MASK, FIRST_EDGE, DIAGONAL_EDGE_MASK, DIAGONAL_FIRST_EDGE,
    row_major, needs_backward, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Pack every packers-th tile into each place it is read from, and zeros into slots that no tile fills.

    Index i < tiles is a tile off the diagonal, tiles + v the diagonal tile of panel v. A forward slot holds
    (source // 4, target, source % 4), a backward slot (target // 4, source, target % 4): the sweep reads four rows of
    a lane at once. The row-major copy (source, target) is for products.
    """
    source = tl.arange(0, 32)
    target = source[:, None]
    for i in range(packer, tiles + panels, packers):
        diagonal = i >= tiles
        forward_slot = tl.load(packed_plan + FORWARD_SLOT + i)
        backward_slot = tl.load(packed_plan + BACKWARD_SLOT + i)
        edge_mask_at = tl.where(diagonal, DIAGONAL_EDGE_MASK + (i - tiles) * 32, EDGE_MASK + i * 32)
        first_edge_at = tl.where(diagonal, DIAGONAL_FIRST_EDGE + (i - tiles) * 32, FIRST_EDGE + i * 32)
        exists, edge = decode_tile_edges(packed_plan, edge_mask_at, first_edge_at)
        w = tl.load(weight + edge, mask=exists, other=0.0).to(ACC_DTYPE)
        if forward_slot >= 0:
            tl.store(packed + forward_slot * 1024 + source // 4 * 128 + target * 4 + source % 4, w)
        if row_major & (i < tiles):
            tl.store(packed + (forward_slots + i) * 1024 + source * 32 + target, w)
        if needs_backward & (backward_slot >= 0):
            at = packed + (forward_slots + tiles + backward_slot) * 1024
            tl.store(at + target // 4 * 128 + source * 4 + target % 4, w)
    for i in range(packer, num_empty_tiles, packers):
        slot = tl.load(packed_plan + EMPTY_SLOT + i)
        tl.store(packed + slot * 1024 + tl.arange(0, 1024), tl.zeros((1024,), ACC_DTYPE))


@triton.jit
def _tile_products(
    values, packed, packed_plan, column, TILE_BLOCK, first, last,
    BLOCK_B: tl.constexpr, TILE_GROUP: tl.constexpr, STAGES: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """sum_j W_j^T a_j over the tiles first:last into a panel, TILE_GROUP at a time: (len(column), 32)."""
    acc = tl.zeros((TILE_GROUP, 32, column.shape[0]), ACC_DTYPE)
    for j in tl.range(first, last, TILE_GROUP, num_stages=STAGES):
        # Invariant: acc[g] holds the tiles first + g, first + g + TILE_GROUP, ... below j.
        a = load_rows(values, block_rows(packed_plan, TILE_BLOCK, j, last, TILE_GROUP), column, BLOCK_B, ACC_DTYPE)
        tile = j + tl.arange(0, TILE_GROUP)
        w = tl.permute(load_tiles(packed, tile, tile < last), (0, 2, 1))
        acc = tl.dot(w, a, acc, input_precision="ieee", out_dtype=ACC_DTYPE)
    return reduce_group(acc)


@triton.jit
def _edge_sums(
    values, weight, packed_plan, TILE_BLOCK, EDGE_MASK, FIRST_EDGE, first, last,
    BLOCK_B: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """The same sums over the edges that exist, and no others: (BLOCK_B, 32)."""
    offs_b = tl.arange(0, BLOCK_B)
    offs_t = tl.arange(0, 32)
    z = tl.zeros((BLOCK_B, 32), ACC_DTYPE)
    for tile in range(first, last):
        edge_mask = tl.load(packed_plan + EDGE_MASK + tile * 32 + offs_t)
        first_edge = tl.load(packed_plan + FIRST_EDGE + tile * 32 + offs_t)
        row = tl.load(packed_plan + TILE_BLOCK + tile) * 32
        for k in range(32):
            a = tl.load(values + (row + k) * BLOCK_B + offs_b).to(ACC_DTYPE)
            w, exists = load_edge_weights(weight, edge_mask, first_edge, offs_t * 0 + k, ACC_DTYPE)
            z += tl.where(exists[None, :], a[:, None] * w[None, :], 0.0)
    return z


@triton.jit
def _activation(
    z, code, scale, CODES: tl.constexpr, HAS_DROPOUT: tl.constexpr, X_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr
):
    """Compute scale * f(z), rounded as if it had been stored and loaded again."""
    a = activate(z, code, CODES)
    if HAS_DROPOUT:
        a = a * scale
    return a.to(X_DTYPE).to(ACC_DTYPE)


@triton.jit
def _sweep(
    sums, rows, quad_weights, code, scale, first,
    COUNT: tl.constexpr, SEGMENT: tl.constexpr, QUADS: tl.constexpr, BLOCK_B: tl.constexpr, CODES: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, X_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """COUNT steps of a forward substitution: neuron first + i is final, its contributions go to all later sums.

    sums: SEGMENT tensors (BLOCK_B, 32), those of this panel and of the ones after it. rows: as `load_tile_rows` has
    them. Invariant before step i: sums include all neurons before first + i; with QUADS, quad[k] is the sum of the k-th
    neuron of the current quad, complete for k = i % 4.
    """
    quad = take_quad(sums[0], first, BLOCK_B)
    for i in tl.static_range(COUNT):
        if QUADS and i % 4 == 0 and i > 0:
            quad = take_quad(sums[0], first + i, BLOCK_B)
        z = quad[i % 4] if QUADS else take_column(sums[0], first + i, BLOCK_B)
        neuron_scale = take_column(scale, first + i, BLOCK_B) if HAS_DROPOUT else z
        neuron_code = code if CODES & (CODES - 1) == 0 else take_column(code, first + i, BLOCK_B)
        a = _activation(z, neuron_code, neuron_scale, CODES, HAS_DROPOUT, X_DTYPE, ACC_DTYPE)
        next_quad = ()
        for k in tl.static_range(4):
            z = quad[k]
            if QUADS and k > i % 4:
                z = tl.fma(a, quad_weights[i // 4 * 16 + k * 4 + i % 4], z)
            next_quad = next_quad + (z,)  # type: ignore[assignment] # noqa: RUF005
        quad = next_quad
        next_sums = ()  # here and not in a function: to pass it all rows takes Triton's compiler seconds
        for k in tl.static_range(SEGMENT):
            next_sums = next_sums + (tl.fma(a, rows[k * COUNT + i], sums[k]),)  # type: ignore[assignment] # noqa: RUF005
        sums = next_sums
    return sums


@triton.jit
def _add_inputs(x_block, sums, rows, first, COUNT: tl.constexpr, SEGMENT: tl.constexpr, BLOCK_B: tl.constexpr):
    """Add the contributions of inputs first:first+COUNT of a block to all sums; no step depends on another."""
    for i in tl.static_range(COUNT):
        a = take_column(x_block, first + i, BLOCK_B)
        next_sums = ()
        for k in tl.static_range(SEGMENT):
            next_sums = next_sums + (tl.fma(a, rows[k * COUNT + i], sums[k]),)  # type: ignore[assignment] # noqa: RUF005
        sums = next_sums
    return sums


@triton.jit
def _load_biases(bias, packed_plan, BIAS_INDEX, row, end, HAS_BIAS: tl.constexpr, ACC_DTYPE: tl.constexpr):
    """The biases of these rows, in their shape; 0 from the end on, and for rows that have none."""
    z = tl.zeros_like(row).to(ACC_DTYPE)
    if HAS_BIAS:
        index = tl.load(packed_plan + BIAS_INDEX + row, mask=row < end, other=-1)
        z = tl.load(bias + index, mask=index >= 0, other=0.0).to(ACC_DTYPE)
    return z


@triton.jit
def _load_direct_rows(
    weight, packed_plan, DIRECT_EDGE_MASK, DIRECT_FIRST_EDGE, end,
    COUNT: tl.constexpr, SEGMENT: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """The rows of COUNT inputs, as `load_tile_rows` has them, gathered from the flat weights."""
    row = tl.arange(0, 32)[:, None, None] + 32 * tl.arange(0, SEGMENT)[None, :, None]
    edge_mask = tl.load(packed_plan + DIRECT_EDGE_MASK + row, mask=row < end, other=0)
    first_edge = tl.load(packed_plan + DIRECT_FIRST_EDGE + row, mask=row < end, other=0)
    w, _ = load_edge_weights(weight, edge_mask, first_edge, tl.arange(0, COUNT)[None, None, :], ACC_DTYPE)
    return unstack(tl.reshape(w, (1, 32, SEGMENT * COUNT)), 1, 32, SEGMENT * COUNT)


@triton.jit
def _store_outputs(a, out, column, samples, B, columns):
    """out[samples, column] = a (BLOCK_B, 32), where a column isn't negative."""
    mask = (samples < B)[:, None] & (column >= 0)
    tl.store(out + samples[:, None].to(tl.int64) * columns + column, a, mask=mask)


@triton.jit
def _load_inputs(x, samples, block, B, I, ACC_DTYPE: tl.constexpr):
    """(BLOCK_B, 32) a block of inputs, 0 beyond the batch and beyond the inputs."""
    row = block * 32 + tl.arange(0, 32)
    mask = (samples < B)[:, None] & (row < I)[None, :]
    return tl.load(x + samples[:, None].to(tl.int64) * I + row[None, :], mask=mask, other=0.0).to(ACC_DTYPE)


@triton.jit
def _copy_inputs(
    x, values, out, packed_plan, OUT_COLUMN, samples, B, I, input_blocks, columns,
    BLOCK_B: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Copy x[samples] to the first rows of values (R, BLOCK_B), and to out where an input is also an output."""
    for j in range(input_blocks):
        row = j * 32 + tl.arange(0, 32)
        column = tl.load(packed_plan + OUT_COLUMN + row)
        x_block = _load_inputs(x, samples, j, B, I, ACC_DTYPE)
        tl.store(values + row[None, :] * BLOCK_B + tl.arange(0, BLOCK_B)[:, None], x_block)
        _store_outputs(x_block, out, column[None, :], samples, B, columns)


@triton.jit
def _load_codes(packed_plan, CODE, row, rows, BLOCK_B: tl.constexpr, CODES: tl.constexpr):
    """(BLOCK_B, 32) activation codes of these rows; zeros that nobody reads if all neurons have the same."""
    code = tl.zeros((BLOCK_B, 32), tl.int32)
    if CODES & (CODES - 1) != 0:
        code += tl.load(packed_plan + CODE + row, mask=row < rows, other=0)[None, :]
    return code


@triton.jit
def _load_dropout_scales(
    packed_plan, pass_key, row, samples, rows, NODE, HIDDEN, threshold, p_bits,
    BLOCK_B: tl.constexpr, HAS_DROPOUT: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """(BLOCK_B, 32) factors of dropout at these rows; rows beyond the last repeat the last."""
    scale = tl.zeros((BLOCK_B, 32), ACC_DTYPE)
    if HAS_DROPOUT:
        row = tl.minimum(row, rows - 1)
        scale = dropout_scales(packed_plan, pass_key, row, samples, NODE, HIDDEN, threshold, p_bits, ACC_DTYPE)
    return scale


@triton.jit
def _wait_for_packers(counters, packers):
    """Spin until all tiles are packed. Returns how many programs have waited before, in the first of 256 elements.

    At least one element for each thread: a scalar would be broadcast to all threads at once, and they would wait for
    it.
    """
    ready = tl.atomic_add(counters, 0, sem="acquire")
    while ready < packers:
        ready = tl.atomic_add(counters, 0, sem="acquire")
    offsets = tl.arange(0, 256)
    return tl.atomic_add(counters + 1 + offsets * 0, 1, mask=offsets == 0, sem="relaxed")


@triton.jit
def _reset_counters(counters, waited, slices, COUNT: tl.constexpr):
    """Leave the counters at 0 for the next launch: done by the program that was the last to wait."""
    offsets = tl.arange(0, 256)
    for i in tl.static_range(COUNT):
        tl.store(counters + i + offsets * 0, offsets * 0, mask=(offsets == 0) & (waited == slices - 1))


@triton.jit
def _forward_by_edges(
    values, z_values, out, weight, bias, pass_key, packed_plan, samples, input_blocks, threshold, p_bits,
    first_panel, last_panel, B, columns, rows, CODE, NODE, HIDDEN, BIAS_INDEX, OUT_COLUMN, TILE_START, TILE_BLOCK,
    EDGE_MASK, FIRST_EDGE, DIAGONAL_EDGE_MASK, DIAGONAL_FIRST_EDGE,
    BLOCK_B: tl.constexpr, CODES: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_DROPOUT: tl.constexpr,
    SAVE_Z: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """The same substitution over the edges that exist, and no others: for slices with a sum that isn't finite."""
    X_DTYPE: tl.constexpr = values.dtype.element_ty
    offs_k = tl.arange(0, 32)
    for panel in range(first_panel, last_panel):
        row = (input_blocks + panel) * 32 + offs_k
        first = tl.load(packed_plan + TILE_START + panel)
        last = tl.load(packed_plan + TILE_START + panel + 1)
        z = _edge_sums(values, weight, packed_plan, TILE_BLOCK, EDGE_MASK, FIRST_EDGE, first, last, BLOCK_B, ACC_DTYPE)
        at = row[None, :] * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
        z += _load_biases(bias, packed_plan, BIAS_INDEX, row, rows, HAS_BIAS, ACC_DTYPE)[None, :]
        code = _load_codes(packed_plan, CODE, row, rows, BLOCK_B, CODES)
        scale = _load_dropout_scales(
            packed_plan, pass_key, row, samples, rows, NODE, HIDDEN, threshold, p_bits, BLOCK_B, HAS_DROPOUT, ACC_DTYPE
        )
        edge_mask = tl.load(packed_plan + DIAGONAL_EDGE_MASK + panel * 32 + offs_k)
        first_edge = tl.load(packed_plan + DIAGONAL_FIRST_EDGE + panel * 32 + offs_k)
        for t in range(32):
            # Invariant: z includes all neurons before t of this panel.
            a = _activation(z, code, scale, CODES, HAS_DROPOUT, X_DTYPE, ACC_DTYPE)
            a = take_column(a, t, BLOCK_B)
            w, exists = load_edge_weights(weight, edge_mask, first_edge, offs_k * 0 + t, ACC_DTYPE)
            z += tl.where(exists[None, :], a * w[None, :], 0.0)
        a = _activation(z, code, scale, CODES, HAS_DROPOUT, X_DTYPE, ACC_DTYPE)
        _store_outputs(a, out, tl.load(packed_plan + OUT_COLUMN + row)[None, :], samples, B, columns)
        tl.store(values + at, a)
        if SAVE_Z:
            tl.store(z_values + at, z)
        tl.debug_barrier()


@triton.jit(do_not_specialize=RUNTIME)
def tiled_forward_kernel(
    x, weight, bias, key, out, saved, partials, packed_plan, table,
    B, I, columns, rows, input_blocks, tiles, panels, packers, num_empty_tiles, slices,
    threshold: tl.int64, p_bits: tl.int64, first_panel, last_panel, needs_backward,
    CODE, NODE, HIDDEN, BIAS_INDEX, OUT_COLUMN, TILE_START, TILE_BLOCK, FORWARD_SLOT, BACKWARD_SLOT, EMPTY_SLOT,
    EDGE_MASK, FIRST_EDGE, DIAGONAL_EDGE_MASK, DIAGONAL_FIRST_EDGE, DIRECT_EDGE_MASK, DIRECT_FIRST_EDGE,
    BLOCK_B: tl.constexpr, SEGMENT: tl.constexpr, UNROLL: tl.constexpr, QUADS: tl.constexpr,
    DIRECT_INPUTS: tl.constexpr, CODES: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_DROPOUT: tl.constexpr,
    SAVE_Z: tl.constexpr, SPLIT_K: tl.constexpr, FIRST_SEGMENT: tl.constexpr, TICKETS: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute a = f(b + W a) for the panels first_panel:last_panel and BLOCK_B samples, by forward substitution.

    FIRST_SEGMENT: the first of several launches; it writes the addresses of its tensors into the table. SPLIT_K is 0 in
    the first launch. In all others it is the number of partial sums to add, and pointers come from the table: the
    arguments have the right dtypes, but may be other tensors by then.

    The first `packers` programs pack the weights, the others wait until all have done so. Where there are more
    programs than a GPU holds, those that wait could keep out those that they wait for: then a program's role comes
    from a ticket, drawn in the order in which programs start (TICKETS).

    One loop runs over the inputs, one over all panels, UNROLL rows of tiles at a time, so that loads are under way
    throughout. What else a panel needs is loaded during the panel before (next_*).
    """
    counters = table.to(tl.pointer_type(tl.int32), bitcast=True)
    role = tl.program_id(0)
    if TICKETS:
        role = tl.atomic_add(counters + 2, 1, sem="relaxed")
    if FIRST_SEGMENT and role == 0:
        store_address(table, _WEIGHT, weight)
        store_address(table, _BIAS, bias)
        store_address(table, _KEY, key)
        store_address(table, _OUT, out)
        store_address(table, _SAVED, saved)
        store_address(table, _PARTIALS, partials)
    if SPLIT_K:
        weight = load_pointer(table, _WEIGHT, weight.dtype.element_ty)
        bias = load_pointer(table, _BIAS, bias.dtype.element_ty)
        key = load_pointer(table, _KEY, key.dtype.element_ty)
        out = load_aligned_pointer(table, _OUT, out.dtype.element_ty)
        saved = load_aligned_pointer(table, _SAVED, saved.dtype.element_ty)
        partials = load_aligned_pointer(table, _PARTIALS, partials.dtype.element_ty)
    size = (rows * BLOCK_B).to(tl.int64)
    stride = slices * size
    packed = packed_tiles(saved, stride * (2 if SAVE_Z else 1), ACC_DTYPE)
    slice_id = role - packers
    if slice_id < 0:
        if SPLIT_K == 0:  # after the first launch all tiles are packed
            _pack_tiles(
                weight, packed, packed_plan, tiles, panels, (input_blocks + panels) * SEGMENT, num_empty_tiles, role,
                packers, FORWARD_SLOT, BACKWARD_SLOT, EMPTY_SLOT, EDGE_MASK, FIRST_EDGE, DIAGONAL_EDGE_MASK,
                DIAGONAL_FIRST_EDGE, FIRST_SEGMENT | (needs_backward != 0), needs_backward != 0, ACC_DTYPE,
            )  # fmt: skip
            tl.debug_barrier()
            tl.atomic_add(counters, 1, sem="release")
    else:
        X_DTYPE: tl.constexpr = saved.dtype.element_ty
        pass_key = tl.load(key)
        CHUNKS: tl.constexpr = 32 // UNROLL
        values = saved + slice_id * size
        z_values = saved + (slices + slice_id) * size
        samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
        offs_k = tl.arange(0, 32)
        offs_b = tl.arange(0, BLOCK_B)
        row = (input_blocks + first_panel) * 32 + offs_k
        end = (input_blocks + last_panel) * 32
        # The sums start as biases and what earlier segments contribute; those of all panels are loaded at once.
        panel_rows = row[None, :, None] + 32 * tl.arange(0, SEGMENT)[None, None, :]
        initial = _load_biases(bias, packed_plan, BIAS_INDEX, panel_rows, end, HAS_BIAS, ACC_DTYPE)
        initial = initial + tl.zeros((BLOCK_B, 1, 1), ACC_DTYPE)
        if SPLIT_K:
            partial_at = slice_id * size + panel_rows * BLOCK_B + offs_b[:, None, None]
            initial += load_partials(partials, partial_at, panel_rows < end, stride, SPLIT_K)
        sums = unstack(initial, BLOCK_B, 32, SEGMENT)
        column = tl.load(packed_plan + OUT_COLUMN + panel_rows, mask=panel_rows < end, other=-1)
        out_columns = unstack(column, 1, 32, SEGMENT)
        code = _load_codes(packed_plan, CODE, row, rows, BLOCK_B, CODES)
        next_code = _load_codes(packed_plan, CODE, row + 32, rows, BLOCK_B, CODES)
        scale = _load_dropout_scales(
            packed_plan, pass_key, row, samples, rows, NODE, HIDDEN, threshold, p_bits, BLOCK_B, HAS_DROPOUT, ACC_DTYPE
        )
        if SPLIT_K == 0:  # what doesn't need the packed weights is done while they are packed
            _copy_inputs(
                x, values, out, packed_plan, OUT_COLUMN, samples, B, I, input_blocks, columns, BLOCK_B, ACC_DTYPE
            )
            x_block = _load_inputs(x, samples, 0, B, I, ACC_DTYPE)
            next_x_block = _load_inputs(x, samples, 1, B, I, ACC_DTYPE)
            if DIRECT_INPUTS:
                for _ in range(tl.cdiv(I, DIRECT_INPUTS)):  # once: after a loop, Triton keeps the sums in one layout
                    direct_rows = _load_direct_rows(
                        weight, packed_plan, DIRECT_EDGE_MASK, DIRECT_FIRST_EDGE, last_panel * 32,
                        DIRECT_INPUTS, SEGMENT, ACC_DTYPE,
                    )  # fmt: skip
                    sums = _add_inputs(x_block, sums, direct_rows, 0, DIRECT_INPUTS, SEGMENT, BLOCK_B)
            waited = _wait_for_packers(counters, packers)
            CHUNK: tl.constexpr = UNROLL if UNROLL < 16 else 16
            for step in tl.range(0, 0 if DIRECT_INPUTS else tl.cdiv(I, CHUNK), num_stages=3):
                # Invariant: sums include the inputs before step * CHUNK; x_block is the block of input step * CHUNK.
                block = step * CHUNK // 32
                t = step * CHUNK % 32
                in_segment = tl.arange(0, SEGMENT) < last_panel
                tile_rows = load_tile_rows(packed, block * SEGMENT, in_segment, t, CHUNK, SEGMENT)
                sums = _add_inputs(x_block, sums, tile_rows, t, CHUNK, SEGMENT, BLOCK_B)
                if t == 32 - CHUNK:
                    x_block = next_x_block
                    next_x_block = _load_inputs(x, samples, block + 2, B, I, ACC_DTYPE)
        nonfinite = tl.zeros((BLOCK_B, 32), tl.int32)
        for step in tl.range(0, (last_panel - first_panel) * CHUNKS, num_stages=3):
            # Invariant: sums[k] belong to panel + k, and include inputs, earlier panels and neurons before t of this
            # one; out_columns, code and scale belong to this panel.
            panel = first_panel + step // CHUNKS
            t = step % CHUNKS * UNROLL
            in_segment = panel + tl.arange(0, SEGMENT) < last_panel
            tile_rows = load_tile_rows(packed, (input_blocks + panel) * SEGMENT, in_segment, t, UNROLL, SEGMENT)
            quad_weights = load_quad_weights(packed, (input_blocks + panel) * SEGMENT, t, UNROLL)
            sums = _sweep(
                sums, tile_rows, quad_weights, code, scale, t,
                UNROLL, SEGMENT, QUADS, BLOCK_B, CODES, HAS_DROPOUT, X_DTYPE, ACC_DTYPE,
            )  # fmt: skip
            # The second condition always holds; without it Triton doesn't pipeline the loads.
            if (t == 32 - UNROLL) & (panel < last_panel):
                z = sums[0]
                row = (input_blocks + panel) * 32 + offs_k
                at = tl.max_contiguous(row[None, :] * BLOCK_B + offs_b[:, None], (1, 1))
                a = _activation(z, code, scale, CODES, HAS_DROPOUT, X_DTYPE, ACC_DTYPE)
                _store_outputs(a, out, out_columns[0], samples, B, columns)
                tl.store(values + at, a)
                if SAVE_Z:
                    tl.store(z_values + at, z)
                nonfinite |= is_nonfinite(z)
                sums = shift(sums, SEGMENT)
                out_columns = shift(out_columns, SEGMENT)
                code = next_code
                next_code = _load_codes(packed_plan, CODE, row + 64, rows, BLOCK_B, CODES)
                scale = _load_dropout_scales(
                    packed_plan, pass_key, row + 32, samples, rows, NODE, HIDDEN, threshold, p_bits,
                    BLOCK_B, HAS_DROPOUT, ACC_DTYPE,
                )  # fmt: skip
        if tl.sum(nonfinite) != 0:
            tl.debug_barrier()
            _forward_by_edges(
                values, z_values, out, weight, bias, pass_key, packed_plan, samples, input_blocks, threshold, p_bits,
                first_panel, last_panel, B, columns, rows, CODE, NODE, HIDDEN, BIAS_INDEX, OUT_COLUMN, TILE_START,
                TILE_BLOCK, EDGE_MASK, FIRST_EDGE, DIAGONAL_EDGE_MASK, DIAGONAL_FIRST_EDGE,
                BLOCK_B, CODES, HAS_BIAS, HAS_DROPOUT, SAVE_Z, ACC_DTYPE,
            )  # fmt: skip
        if SPLIT_K == 0:
            _reset_counters(counters, waited, slices, 4 if TICKETS else 2)


@triton.jit(do_not_specialize=RUNTIME)
def tiled_products_kernel(
    packed_plan, table, rows, input_blocks, slices, forward_slots, first_panel, FIRST_TILE, END_TILE, TILE_BLOCK,
    BLOCK_B: tl.constexpr, SLICES_PER_PROGRAM: tl.constexpr, TILE_GROUP: tl.constexpr, STAGES: tl.constexpr,
    SAVE_Z: tl.constexpr, X_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """partials[:, :, rows of a segment] = what all blocks before the segment contribute to it.

    Grid: (groups of SLICES_PER_PROGRAM slices, panels of the segment, SPLIT_K). The tiles of a panel are
    first_tile[panel]:end_tile[panel], divided among the programs of the last axis, each with a partial sum of its own.
    """
    saved = load_aligned_pointer(table, _SAVED, X_DTYPE)
    partials = load_aligned_pointer(table, _PARTIALS, ACC_DTYPE)
    panel = first_panel + tl.program_id(1)
    size = (rows * BLOCK_B).to(tl.int64)
    packed = packed_tiles(saved, slices * size * (2 if SAVE_Z else 1), ACC_DTYPE) + forward_slots * 1024
    column, exists = slice_columns(tl.program_id(0) * SLICES_PER_PROGRAM, slices, size, BLOCK_B, SLICES_PER_PROGRAM)
    first, last = split_range(tl.load(packed_plan + FIRST_TILE + panel), tl.load(packed_plan + END_TILE + panel))
    z = _tile_products(
        saved, packed, packed_plan, column, TILE_BLOCK, first, last, BLOCK_B, TILE_GROUP, STAGES, ACC_DTYPE
    )
    row = (input_blocks + panel) * 32 + tl.arange(0, 32)
    partial = partials + tl.program_id(2) * slices * size
    tl.store(partial + row[None, :] * BLOCK_B + column[:, None], z, mask=exists[:, None])
