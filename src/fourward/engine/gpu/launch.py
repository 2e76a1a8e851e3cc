"""From tensors to kernels: which way a network is walked, how wide the slices are, what each launch is given."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from fourward.engine.gpu import levels, panels, panels_back
from fourward.engine.gpu.call import Kernel, counters, plain, processors
from fourward.engine.gpu.lists import lists_backward, lists_forward, lists_weights
from fourward.engine.gpu.program import LAYOUT, LISTS, PANELS, STRETCH, Shape
from fourward.errors import EngineError
from fourward.plan.activations import ACTIVATIONS
from fourward.plan.tiles import SIDE

_TYPES = {torch.float32: tl.float32, torch.float64: tl.float64, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
_forward, _backward, _weights = (
    Kernel(k) for k in (panels.panels_forward, panels_back.panels_backward, panels_back.panels_weights)
)
_products, _products_back = Kernel(panels.panels_products), Kernel(panels_back.panels_products_back)
_walk_forward, _walk_backward, _walk_weights = Kernel(lists_forward), Kernel(lists_backward), Kernel(lists_weights)

#: Activations of an instruction or two, as bits.
CHEAP = sum(1 << ACTIVATIONS[name].code for name in ("identity", "relu", "leaky_relu", "abs", "square"))
WHOLE = 12  #: panels that one launch walks; more are walked in stretches
WIDTH = {PANELS: 8, LISTS: 32}  #: samples in a slice
SAMPLES = 32  #: at a time, where gradients of weights are computed from tiles
PROGRAMS = 264  #: that keep a card busy with gradients of weights
EDGES = 16  #: edges for each program that computes gradients of weights

Kept = tuple[Tensor, Tensor]  #: activations (and z), weights in tiles


class Way(NamedTuple):
    """How a batch is walked."""

    name: str  #: "panels", "stretches", "lists" or "levels"
    width: int  #: BB, samples in a slice
    group: int  #: G, tiles at a time; or D, edges at a time
    warps: int
    span: int = 0  #: T, neurons at a time, where lists are walked


@lru_cache(maxsize=256)
def way(kind: int, rows: int, panel_count: int, edges: int, levels_: int, batch: int) -> Way:
    """The way for a batch; the evidence is in docs/gpu.md."""
    if kind == PANELS:
        return Way("panels" if panel_count <= WHOLE else "stretches", WIDTH[PANELS], 1 if panel_count <= 4 else 2, 4)
    degree = edges / max(rows, 1)
    walk = (levels_ + rows / 8) * (0.6 + 0.1 * degree)  # microseconds, from measurements on an H200
    spread = levels_ * (2.0 + 0.02 * degree) + edges * batch * 1.5e-6
    if walk < spread:
        return Way("lists", WIDTH[LISTS], 8, 4, 8)
    return Way("levels", WIDTH[LISTS], *((8, 4, 16) if degree <= 24 and edges * batch > 1.5e8 else (32, 4, 4)))


def way_of(shape: Shape, batch: int) -> Way:
    """The way for a batch of this size."""
    return way(shape.kind, shape.rows, shape.panels, shape.edges, shape.levels, batch)


class Spread(NamedTuple):
    """How the products between stretches are spread over the card."""

    slices: int  #: that share a program, and with it the loads of weights
    shares: int  #: programs that share the tiles of a panel
    group: int  #: tiles at a time
    stages: int  #: groups of tiles under way
    warps: int


def spread_of(slices: int, panel_count: int) -> Spread:
    """Few slices share their tiles among several programs, many slices share a program."""
    programs = slices * panel_count
    if programs >= 512:
        return Spread(4, 1, 4, 1, 4)
    if programs >= 256:
        return Spread(2, 1, 4, 2, 4)
    return Spread(1, 4 if programs <= 32 else 2 if programs <= 64 else 1, 8, 2, 4)


def shares_of(s: Shape, batch: int) -> int:
    """Programs that share the batch, where the gradients of one tile are computed."""
    return max(1, min(-(-batch // SAMPLES), PROGRAMS // max(s.tiles + s.panels, 1)))


def check_layout(program: Tensor, shape: list[int]) -> None:
    """Refuse a program that another version of fourward packed."""
    if shape[0] != LAYOUT:
        raise EngineError(
            f"this network was exported by another version of fourward (layout {shape[0]}, not {LAYOUT}). "
            "Export it again with this one."
        )


def describe(shape: Shape) -> str:
    """How a batch of 128 is walked, and why so."""
    how = way_of(shape, 128)
    if shape.kind == PANELS:
        filled = shape.edges / (shape.tiles + shape.panels) / SIDE**2
        tiles = f"{shape.tiles + shape.panels:,} tiles of {SIDE} by {SIDE} weights, {filled:.0%} filled"
        if how.name == "panels":
            return f"walks {shape.panels} panels of {SIDE} neurons in one launch: {tiles}"
        count = -(-shape.panels // STRETCH)
        return f"walks {count} stretches of {STRETCH} panels, products between them spread over the card: {tiles}"
    if shape.levels == 0:
        return "copies: all nodes are inputs"
    why = "tiles would be too empty, or too many"
    if how.name == "lists":
        return f"walks lists of edges in one launch, its {shape.levels:,} levels being narrow: {why}"
    return f"walks lists of edges, a launch for each of {shape.levels:,} levels at a batch of 128: {why}"


def wide_of(dtype: torch.dtype) -> torch.dtype:
    """What sums are kept in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def kept_sizes(shape: Shape, batch: int, again: bool = True) -> tuple[int, int]:
    """Numbers that a forward pass keeps: activations, with z if it is needed again, and weights in tiles."""
    width = WIDTH[shape.kind]
    packed = (shape.tiles + 3 * shape.panels) * 1024 if shape.kind == PANELS else 0
    return -(-batch // width) * width * shape.rows * (1 + shape.z * again), packed


def kept_like(x: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """What a forward pass keeps, as torch sees it while tracing."""
    kept, packed = kept_sizes(shape, x.shape[0])
    return x.new_empty(kept), x.new_empty(packed, dtype=wide_of(x.dtype))


def _drawn(key: Tensor | None, p: float, stand_in: Tensor) -> tuple[Tensor, int, int]:
    """Key, threshold and the bits of p, for the kernels."""
    if key is None:
        return stand_in, 0, 0
    return key, round(p * 2**32), int(np.float64(p).view(np.int64))


def steps(codes: int) -> int:
    """How many steps of a sweep are written out: all if they are short, else so few that they compile in seconds."""
    if codes & ~CHEAP == 0 and codes.bit_count() <= 2:
        return 32
    return 4 if codes.bit_count() == 1 else 2 if codes.bit_count() <= 4 else 1


class _Recipe(NamedTuple):
    """All that a forward pass does, but for its tensors; made once for a shape of batch."""

    how: Way
    columns: int
    kept: int
    packed: int
    wide: torch.dtype
    slices: int
    numbers: tuple[int, ...]
    fields: tuple[int, ...]
    flags: tuple[Any, ...]


@lru_cache(maxsize=1024)
def _recipe(
    s: Shape, batch: int, dtype: torch.dtype, weight: torch.dtype, biased: bool, drop: bool, everything: bool,
    again: bool,
) -> _Recipe:  # fmt: skip
    how, wide = way_of(s, batch), wide_of(dtype)
    slices = -(-batch // how.width)
    columns = s.nodes if everything else s.outputs
    at = s.nodes_at if everything else s.outputs_at
    if s.kind == PANELS:
        numbers: tuple[int, ...] = batch, s.inputs, columns, s.rows, s.lead, s.tiles, s.panels
        lower = s.start if how.name == "panels" else s.mid
        fields: tuple[int, ...] = s.code, s.node, s.hidden, s.bias_at, at, lower, s.start, s.block, s.last_of, s.word
        fields += s.base, s.own_word, s.own_base
        flags: tuple[Any, ...] = how.width, how.group, 1, s.codes, biased, drop, bool(s.z) and again, steps(s.codes)
    else:
        numbers = batch, s.inputs, columns, s.rows, slices
        fields = s.code, s.node, s.hidden, s.bias_at, at, s.level_start, s.edge_start, s.source
        flags = s.codes, biased, drop, bool(s.z) and again, _TYPES[dtype], _TYPES[weight], _TYPES[wide]
    return _Recipe(how, columns, *kept_sizes(s, batch, again), wide, slices, numbers, fields, flags)


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, program: Tensor, shape: Shape, key: Tensor | None, p: float,
    everything: bool, again: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Outputs (B, O) or all activations (B, N), and what the backward pass needs.

    Where no backward pass will come, `again` is False.
    """
    if bias is not None and (bias.dtype != weight.dtype or bias.device != weight.device):
        raise EngineError(
            f"the biases are {bias.dtype} on {bias.device}, but the weights are {weight.dtype} on {weight.device}. "
            "Bring them together, for example with net.to()."
        )
    if not x.device == weight.device == program.device:
        raise EngineError(f"x is on {x.device}, the weights on {weight.device}, and the plan on {program.device}.")
    x, weight, bias = plain(x), plain(weight), None if bias is None else plain(bias)
    made = _recipe(shape, x.shape[0], x.dtype, weight.dtype, bias is not None, key is not None, everything, again)
    out, kept = x.new_empty(x.shape[0], made.columns), x.new_empty(made.kept)
    packed = x.new_empty(made.packed, dtype=made.wide)
    if made.columns and x.shape[0]:
        drawn = _drawn(key, p, program)
        run = _panels_forward if shape.kind == PANELS else _lists_forward
        run(made, shape, (x, weight, weight if bias is None else bias, drawn[0], out, kept), packed, program, drawn[1:])
    return out, kept, packed


def _panels_forward(
    made: _Recipe, s: Shape, tensors: tuple[Tensor, ...], packed: Tensor, program: Tensor, draw: tuple[int, ...]
) -> None:
    how, slices, wide = made.how, made.slices, _TYPES[made.wide]
    packers, counts = min(s.tiles + s.panels, 2 * processors(packed.device)), counters(packed.device)
    if how.name == "panels":
        numbers = (*made.numbers, packers, slices, *draw, 0, s.panels, *made.fields)
        given = (*tensors, packed, packed, program, counts)
        _forward((packers + slices,), given, numbers, (*made.flags, 0, wide), how.warps)
        return
    spread = spread_of(slices, STRETCH)
    sums = packed.new_empty(spread.shares * slices * s.rows * how.width)
    given, products = (*tensors, packed, sums, program, counts), (tensors[5], packed, sums, program)
    for first in range(0, s.panels, STRETCH):
        last = min(first + STRETCH, s.panels)
        if first > 0:
            apart = s.rows, s.lead, slices, first, s.start, s.mid, s.block
            grid = -(-slices // spread.slices), last - first, spread.shares
            fixed = how.width, spread.slices, spread.group, spread.stages, wide
            _products(grid, products, apart, fixed, spread.warps)
            packers = 0
        numbers = (*made.numbers, packers, slices, *draw, first, last, *made.fields)
        flags = (*made.flags, spread.shares if first > 0 else 0, wide)
        _forward((packers + slices,), given, numbers, flags, how.warps)


def _lists_forward(
    made: _Recipe, s: Shape, tensors: tuple[Tensor, ...], packed: Tensor, program: Tensor, draw: tuple[int, ...]
) -> None:
    how, numbers = made.how, (*made.numbers, *draw)
    if how.name == "levels":
        levels.forward(how, tensors, program, s, numbers, made.fields, made.flags)
        return
    fixed, given = (True, how.span, how.width, how.group, *made.flags), (*numbers, 0, s.levels, *made.fields)
    _walk_forward((made.slices,), (program, *tensors, program), given, fixed, how.warps)


def backward(
    out_grad: Tensor, weight: Tensor, program: Tensor, shape: Shape, kept: Kept, key: Tensor | None, p: float,
    everything: bool, x_wanted: bool, biased: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x (empty unless wanted), of the weights, and of the biases (empty unless there are any)."""
    out_grad, weight = plain(out_grad), plain(weight)
    batch, s = out_grad.shape[0], shape
    x_grad = out_grad.new_empty(batch if x_wanted else 0, s.inputs)
    weight_grad = torch.empty_like(weight)
    bias_grad = weight.new_empty(s.nodes - s.inputs if biased else 0)
    if not out_grad.numel():
        return x_grad.zero_(), weight_grad.zero_(), bias_grad.zero_()
    how = way_of(s, batch)
    slices = -(-batch // how.width)
    shares = shares_of(s, batch) if s.kind == PANELS else 1
    room = slices * s.rows * how.width + (shares > 1) * (s.tiles + s.panels) * (1 + shares * 1056)
    deltas = kept[0].new_empty(room, dtype=wide_of(kept[0].dtype))
    run = _panels_backward if s.kind == PANELS else _lists_backward
    grads = x_grad, weight_grad, bias_grad
    run(how, out_grad, weight, program, s, kept, key, p, everything, x_wanted, biased, deltas, grads)
    return grads


def _panels_backward(
    how: Way, out_grad: Tensor, weight: Tensor, program: Tensor, s: Shape, kept: Kept, key: Tensor | None,
    p: float, everything: bool, x_wanted: bool, biased: bool, deltas: Tensor, grads: tuple[Tensor, Tensor, Tensor],
) -> None:  # fmt: skip
    (a, packed), (x_grad, weight_grad, bias_grad) = kept, grads
    batch, wide, slices = out_grad.shape[0], _TYPES[wide_of(a.dtype)], -(-out_grad.shape[0] // how.width)
    shares, (key_, threshold, p_bits) = shares_of(s, batch), _drawn(key, p, program)
    whole = how.name == "panels"
    spread = spread_of(slices, STRETCH)
    sums = deltas if whole else deltas.new_empty(spread.shares * slices * s.rows * how.width)
    step = s.panels if whole else STRETCH
    top = max(s.panels - 1, 0) // max(step, 1) * step
    for first in range(top, -1, -max(step, 1)):
        last = min(first + step, s.panels)
        if first < top:
            low, high = (s.lead + first, s.lead + last) if first > 0 else (0, s.lead + last)
            apart = s.rows, s.lead, slices, low, s.back_mid, s.back_start + 1, s.back_tile, s.back_panel
            grid = -(-slices // spread.slices), high - low, spread.shares
            fixed_ = how.width, spread.slices, spread.group, spread.stages, wide
            _products_back(grid, (deltas, packed, sums, program), apart, fixed_, spread.warps)
        numbers = (
            *(batch, s.inputs, out_grad.shape[1], s.rows, s.lead, s.tiles, s.panels, slices, threshold, p_bits),
            *(
                first,
                last,
                s.tiles + s.panels if shares > 1 else 0,
                s.code,
                s.node,
                s.hidden,
                s.all_of if everything else s.out_of,
                s.own_back,
            ),
            *(s.back_start, s.back_start + 1 if whole else s.back_mid, s.back_tile, s.back_panel, s.word),
        )
        fixed = (
            how.width,
            how.group,
            1,
            s.codes,
            key is not None,
            bool(s.z),
            x_wanted,
            spread.shares if first < top else 0,
            wide,
        )
        _backward((slices,), (out_grad, a, packed, sums, key_, x_grad, deltas, program), numbers, fixed, how.warps)
    sizes = (
        *(batch, s.rows, s.lead, s.tiles, s.panels, slices, s.block, s.word, s.base),
        *(s.own_word, s.own_base, s.bias_at, s.tile_panel),
    )
    if s.panels:
        tensors = a, deltas, weight_grad, bias_grad if biased else weight_grad, program
        _weights((s.tiles + s.panels, shares), tensors, sizes, (how.width, SAMPLES, biased, shares > 1, wide), 4)


def _lists_backward(
    how: Way, out_grad: Tensor, weight: Tensor, program: Tensor, s: Shape, kept: Kept, key: Tensor | None,
    p: float, everything: bool, x_wanted: bool, biased: bool, deltas: Tensor, grads: tuple[Tensor, Tensor, Tensor],
) -> None:  # fmt: skip
    a, (x_grad, weight_grad, bias_grad) = kept[0], grads
    batch, wide, slices = out_grad.shape[0], _TYPES[wide_of(a.dtype)], deltas.numel() // (s.rows * how.width)
    key_, threshold, p_bits = _drawn(key, p, program)
    by_source = weight.index_select(0, program[s.out_edge : s.out_edge + s.edges])
    tensors = out_grad, by_source, key_, x_grad, a, deltas
    numbers = batch, s.inputs, out_grad.shape[1], s.rows, slices, threshold, p_bits
    fields: tuple[int, ...] = s.code, s.node, s.hidden, s.all_of if everything else s.out_of
    fields += s.level_start, s.out_start, s.out_target
    types: tuple[Any, ...] = _TYPES[a.dtype], _TYPES[weight.dtype], wide
    flags = s.codes, key is not None, bool(s.z), x_wanted, *types
    blocks = -(-s.edges // EDGES)
    sizes = batch, s.rows, slices, s.edges, s.nodes, s.inputs, blocks, s.source, s.target, s.bias_at
    biases = -(-(s.nodes - s.inputs) // EDGES) if biased else 0
    last = weight_grad, bias_grad if biased else weight_grad
    weighed = (blocks + biases,), sizes, (how.width, EDGES, 64, biased, *types)
    if how.name == "levels":
        levels.backward(how, tensors, last, program, s, numbers, fields, flags, weighed, x_wanted)
        return
    fixed, given = (True, how.span, how.width, how.group, *flags), (*numbers, 0, s.levels, *fields)
    _walk_backward((slices,), (program, *tensors, program), given, fixed, how.warps)
    if blocks + biases:
        _walk_weights(weighed[0], (program, a, deltas, *last, program), sizes, (True, *weighed[2]), 4)
