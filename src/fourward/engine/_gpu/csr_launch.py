"""The launches over lists of edges: one for all levels, or one for each, which are captured as a CUDA graph."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

from torch import Tensor

from fourward.engine._gpu import heuristics
from fourward.engine._gpu.csr_kernels import lists_backward, lists_enter, lists_forward, lists_leave, lists_weights
from fourward.engine._gpu.cuda_graphs import graphs_of
from fourward.engine._gpu.launch_key import TYPES, Case
from fourward.engine._gpu.launcher import Launch, blanks
from fourward.engine._gpu.pointer_table import PLACES, point


class _Pass:
    """What both directions have, tensors apart."""

    def __init__(self, case: Case) -> None:
        s, how = case.shape, case.how
        self.rehearsed = True  # no need: these kernels compile soon enough one by one
        self.case, self.how, self.slices, self.walks = case, how, case.slices, how.name == "lists"
        self.types = TYPES[case.dtype], TYPES[case.weight], TYPES[case.wide]
        self.fixed: tuple[Any, ...] = self.walks, how.span, how.width, how.group, s.codes
        self.point = Launch(point, (1,), (), (), 1)
        self.numbers = case.batch, s.inputs, case.columns, s.rows, case.slices, *case.draw

    def levels(self, program: Tensor) -> list[tuple[int, int]]:
        """The positions of each level; the card is asked for them once."""
        graphs, s = graphs_of(program), self.case.shape
        if graphs.levels is None:
            graphs.levels = list(pairwise(program[s.level_start : s.level_start + s.levels + 1].tolist()))
        return graphs.levels

    def blocks(self, nodes: int, each: int) -> tuple[int]:
        """A grid with programs for so many nodes each."""
        return (-(-nodes // each) * self.slices,)


def _aim(launch: Launch, tensors: tuple[Tensor, ...], table: Tensor) -> None:
    """Write the addresses of tensors into the table; places that nobody reads get the last one, too."""
    launch(table, *tensors, *tensors[-1:] * (PLACES - len(tensors)))


class Forward(_Pass):
    """A forward pass, tensors apart."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        s = case.shape
        self.column = s.nodes_at if case.everything else s.outputs_at
        self.fields = s.code, s.node, s.hidden, s.bias_at, self.column, s.level_start, s.edge_start, s.source
        self.fixed += case.biased, case.p is not None, bool(s.z) and case.more, *self.types
        self.whole = self._launch((self.slices,), 0, s.levels)

    def _launch(self, grid: tuple[int], low: int, high: int) -> Launch:
        return Launch(lists_forward, grid, (*self.numbers, low, high, *self.fields), self.fixed, self.how.warps)

    def __call__(self, tensors: tuple[Tensor, ...], program: Tensor) -> None:
        """Launch, given x, weight, bias, key, out and what is kept."""
        if self.walks:
            self.whole(program, *tensors, program)
        else:
            first, others = partial(_aim, self.point, tensors), partial(self._by_level, tensors, program)
            graphs_of(program).run(self, program.device, first, others)

    def _by_level(self, tensors: tuple[Tensor, ...], program: Tensor, table: Tensor) -> None:
        """X to rows, each level, rows to out."""
        (batch, inputs, columns, rows, *_), kind = self.numbers, (self.how.width, self.types[0])
        apart = blanks(tensors)
        if inputs:
            Launch(lists_enter, self.blocks(inputs, 32), (batch, inputs, rows), kind, self.how.warps)(table, program)
        for low, high in self.levels(program):
            self._launch(self.blocks(high - low, self.how.span), low, high)(table, *apart, program)
        numbers = batch, columns, rows, self.column
        Launch(lists_leave, self.blocks(columns, 32), numbers, kind, self.how.warps)(table, program)


class Backward(_Pass):
    """A backward pass, tensors apart."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        s = case.shape
        self.deltas = self.slices * s.rows * self.how.width
        self.fields: tuple[int, ...] = s.code, s.node, s.hidden, s.all_of if case.everything else s.out_of
        self.fields += s.level_start, s.out_start, s.out_target
        self.fixed += case.p is not None, bool(s.z), case.more, *self.types
        self.whole = self._launch((self.slices,), 0, s.levels)
        edges, nodes = (
            -(-s.edges // heuristics.EDGES),
            -(-(s.nodes - s.inputs) // heuristics.EDGES) if case.biased else 0,
        )
        sizes = case.batch, s.rows, self.slices, s.edges, s.nodes, s.inputs, edges, s.source, s.target, s.bias_at
        fixed = self.walks, self.how.width, heuristics.EDGES, 64, case.biased, *self.types
        self.weights = Launch(lists_weights, (edges + nodes,), sizes, fixed, 4)

    def _launch(self, grid: tuple[int], low: int, high: int) -> Launch:
        return Launch(lists_backward, grid, (*self.numbers, low, high, *self.fields), self.fixed, self.how.warps)

    def __call__(self, tensors: tuple[Tensor, ...], program: Tensor, weight: Tensor) -> None:
        """Launch, given out_grad, key, x_grad, what was kept, weight_grad and bias_grad."""
        (out_grad, key, x_grad, kept, *grads), s = tensors, self.case.shape
        by_source = weight.index_select(0, program[s.out_edge : s.out_edge + s.edges])
        deltas = kept.new_empty(self.deltas, dtype=self.case.wide)
        given = out_grad, by_source, key, x_grad, kept, deltas, *grads
        if self.walks:
            self.whole(program, *given[:6], program)
            self._weigh(given, program, program)
        else:
            first, others = partial(_aim, self.point, given), partial(self._by_level, given, program)
            graphs_of(program).run(self, program.device, first, others)

    def _weigh(self, given: tuple[Tensor, ...], program: Tensor, table: Tensor) -> None:
        if self.weights.grid[0]:
            self.weights(table, *given[4:], program)

    def _by_level(self, given: tuple[Tensor, ...], program: Tensor, table: Tensor) -> None:
        """Each level from the last, inputs if x's gradient is wanted, then all weights."""
        inputs = self.case.shape.inputs
        first, apart = [(0, inputs)] if self.case.more and inputs else [], blanks(given[:6])
        for low, high in reversed([*first, *self.levels(program)]):
            self._launch(self.blocks(high - low, self.how.span), low, high)(table, *apart, program)
        self._weigh(given, program, table)
