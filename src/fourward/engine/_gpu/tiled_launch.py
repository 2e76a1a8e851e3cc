"""The launches over panels: one for all of them, or one for each stretch and one for the products between two.

The first stretch notes the addresses of its tensors in a table, where the other launches look them up.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fourward.engine._gpu import heuristics
from fourward.engine._gpu.cuda_graphs import graphs_of
from fourward.engine._gpu.launch_key import TYPES, Case
from fourward.engine._gpu.launcher import Launch, blanks, counters, holds, rehearsing
from fourward.engine._gpu.tiled_backward import panels_backward, panels_products_back, panels_weights
from fourward.engine._gpu.tiled_forward import panels_forward, panels_products

Numbers = tuple[int, ...]


class Forward:
    """A forward pass, tensors apart."""

    def __init__(self, case: Case) -> None:
        self.rehearsed = False
        self.first, *self.others = _forward(case)  # of a stretch, of products, of a stretch, ...
        self.wide, self.sums = case.wide, _sums(case)

    def __call__(self, tensors: tuple[Tensor, ...], program: Tensor) -> None:
        """Launch, given x, weight, bias, key, out and what is kept."""
        if not self.others:
            self.first(*tensors, tensors[5], program, counters(program.device))
            return
        given = *tensors, _room(tensors[0], self.sums, self.wide), program

        def others(table: Tensor) -> None:
            apart = *blanks(given[:4]), *given[4:]
            for i, launch in enumerate(self.others):
                launch(*(apart if i % 2 else apart[7:]), table)

        graphs_of(program).run(self, program.device, lambda table: self.first(*given, table), others)


class Backward:
    """A backward pass, tensors apart."""

    def __init__(self, case: Case) -> None:
        self.rehearsed = False
        s, shares = case.shape, heuristics.shares_of(case.shape, case.batch)
        self.first, *self.others, self.weights = _backward(case)
        self.wide, self.sums = case.wide, _sums(case)
        self.deltas = case.slices * s.rows * case.how.width + (shares > 1) * (s.tiles + s.panels) * (1 + shares * 1056)

    def __call__(self, tensors: tuple[Tensor, ...], program: Tensor, weight: Tensor) -> None:
        """Launch, given out_grad, key, x_grad, what was kept, weight_grad and bias_grad."""
        out_grad, key, x_grad, kept, *grads = tensors
        deltas = _room(kept, self.deltas, self.wide)
        sums = _room(kept, self.sums, self.wide) if self.others else deltas
        given = out_grad, key, weight, x_grad, kept, deltas, sums, *grads, program

        def others(table: Tensor) -> None:
            apart = (*blanks(given[:3]), *given[3:]) if self.others else given
            for i, launch in enumerate(self.others):
                launch(*(apart if i % 2 else apart[9:]), table)
            self.weights(kept, deltas, *grads, program, table)

        if self.others:
            graphs_of(program).run(self, program.device, lambda table: self.first(*given, table), others)
        else:
            self.first(*given, program)
            others(program)


def _room(like: Tensor, numbers: int, dtype: torch.dtype) -> Tensor:
    return like.new_empty(0 if rehearsing() else numbers, dtype=dtype)


def _sums(case: Case) -> int:
    """Room for what stretches take from others."""
    shares = heuristics.spread_of(case.slices).shares
    return shares * case.slices * case.shape.rows * case.how.width


def _steps(case: Case, most: int) -> int:
    """Steps of a sweep that are written out; half as many of wide numbers, whose rows take twice the room."""
    return max(4, min(case.how.group // (case.wide.itemsize // 4), most))


def _forward(case: Case) -> list[Launch]:
    s, how, slices, wide = case.shape, case.how, case.slices, TYPES[case.wide]
    spread = heuristics.spread_of(slices)
    packers, tickets = heuristics.packers_of(s.tiles + s.panels, slices, holds(case.device, how.warps))
    holes = s.holes + (s.back_holes if case.more else 0)
    keep_z, several, made = bool(s.z) and case.more, s.panels > s.span, []
    sizes = case.batch, s.inputs, case.columns, s.rows, s.lead, s.tiles, s.panels
    fields: Numbers = s.code, s.node, s.hidden, s.bias_at, s.all_of if case.everything else s.out_of, s.start, s.block
    fields += s.ahead, s.behind, s.hole, s.word, s.base, s.own_word, s.own_base, s.in_word, s.in_base
    steps = _steps(case, min(heuristics.steps(s.codes), heuristics.ROWS // s.span))
    flags = how.width, s.span, steps, how.fours, s.few, s.codes, case.biased, case.p is not None, keep_z
    for first in range(0, s.panels, s.span):
        last = min(first + s.span, s.panels)
        if first > 0:
            grid = -(-slices // spread.slices), last - first, spread.shares
            apart = s.rows, s.lead, slices, s.near, first, s.start, s.mid, s.block
            fixed = how.width, spread.slices, spread.group, spread.stages, keep_z, TYPES[case.dtype], wide
            made.append(Launch(panels_products, grid, apart, fixed, spread.warps))
            packers, tickets = 0, False
        numbers = *sizes, packers, holes, slices, *case.draw, first, last, int(case.more), *fields
        shared = *flags, spread.shares if first > 0 else 0, several and first == 0, tickets, wide
        made.append(Launch(panels_forward, (packers + slices,), numbers, shared, how.warps))
    return made


def _backward(case: Case) -> list[Launch]:
    s, how, slices, wide = case.shape, case.how, case.slices, TYPES[case.wide]
    spread, shares = heuristics.spread_of(slices), heuristics.shares_of(s, case.batch)
    several, top, made = s.panels > s.span, (s.panels - 1) // s.span * s.span, []
    sizes = case.batch, s.inputs, case.columns, s.rows, s.lead, s.tiles, s.panels, slices, *case.draw
    fields: Numbers = s.code, s.node, s.hidden, s.all_of if case.everything else s.out_of, s.back_start
    fields += s.back_mid if several else s.back_start + 1, s.back_tile, s.back_panel, s.word, s.base, s.own_word
    fields += (s.own_base,)
    flags = (
        how.width,
        s.span,
        _steps(case, heuristics.STEPS),
        how.fours,
        s.codes,
        case.p is not None,
        bool(s.z),
        case.more,
    )
    for first in range(top, -1, -s.span):
        last = min(first + s.span, s.panels)
        if first < top:
            low, high = s.lead + first if first > 0 else 0, s.lead + last
            grid = -(-slices // spread.slices), high - low, spread.shares
            apart = s.rows, s.lead, slices, s.near, low, s.back_mid, s.back_start + 1, s.back_tile, s.back_panel
            fixed = how.width, spread.slices, spread.group, spread.stages, bool(s.z), TYPES[case.dtype], wide
            made.append(Launch(panels_products_back, grid, apart, fixed, spread.warps))
        numbers = *sizes, first, last, s.tiles + s.panels if shares > 1 else 0, *fields
        shared = *flags, spread.shares if first < top else 0, 0 < first == top, wide
        made.append(Launch(panels_backward, (slices,), numbers, shared, how.warps))
    sizes_: Numbers = case.batch, s.rows, s.lead, s.tiles, s.panels, slices, s.block, s.word, s.base
    sizes_ += s.own_word, s.own_base, s.bias_at, s.tile_panel
    weighing = how.width, heuristics.SAMPLES, case.biased, shares > 1, several, wide
    return [*made, Launch(panels_weights, (s.tiles + s.panels, shares), sizes_, weighing, 4)]
