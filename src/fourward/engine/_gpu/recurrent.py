"""Networks with feedback on a GPU: a runner that packs the plan and calls the launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from fourward.engine._dropout import Dropout
from fourward.engine._gpu.heuristics import describe_recurrent
from fourward.engine._gpu.kernel_launch import reserve_rows
from fourward.engine._gpu.recurrent_packing import pack_recurrent
from fourward.engine._interface import plain
from fourward.engine._kernel_recurrent import Gradients, KernelRecurrentRunner
from fourward.plan._recurrent_plan import RecurrentPlan


class GpuRecurrentRunner(KernelRecurrentRunner):
    """A recurrent plan packed for the GPU's kernels."""

    def __init__(self, plan: RecurrentPlan) -> None:
        packed_plan, shape = pack_recurrent(plan)
        super().__init__(plan, packed_plan)
        self.shape = shape

    def describe(self) -> str:
        """The strategy for a batch of 128, and its reason."""
        return describe_recurrent(self.shape)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> GpuRecurrentRunner:
        super()._apply(fn, recurse)
        if self.packed_plan.device.type == "cuda":
            reserve_rows(self.packed_plan.device)  # counters that a CUDA graph captured later must find
        return self

    def compute(
        self, x: Tensor, h0: Tensor | None, weight: Tensor, bias: Tensor | None, rate: Tensor | None,
        dropout: Dropout | None, all_nodes: bool, needs_backward: bool,
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:  # fmt: skip
        """Activations of all steps are saved, then voltages and sums where a backward pass needs them."""
        from fourward.engine._gpu.recurrent_launch import RecurrentKey, forward_pass  # it imports triton

        key = RecurrentKey(
            self.shape, x.shape[0], x.shape[1], x.dtype, x.device, h0 is not None, bias is not None, rate is not None,
            None if dropout is None else dropout.p, all_nodes, needs_backward,
        )  # fmt: skip
        out = x.new_empty(key.steps, key.batch, key.columns)
        h, saved = x.new_empty(key.batch, self.shape.nodes), x.new_empty(key.saved_size)
        if key.batch:
            packed_plan = self.packed_plan
            by_target = plain(weight).index_select(0, self._field(self.shape.edge))
            arguments = [saved if tensor is None else plain(tensor) for tensor in (x, h0, by_target, bias, rate)]
            dropout_key = packed_plan if dropout is None else dropout.key
            forward_pass(key)((*arguments, dropout_key, out, h, saved), packed_plan)
        return out, h, (saved,)

    def compute_gradients(self, ctx: Any, out_grad: Tensor | None, h_grad: Tensor | None) -> Gradients:
        """Call the kernels."""
        from fourward.engine._gpu.recurrent_launch import RecurrentKey, backward_pass

        x, h0, weight, bias, rate, saved = ctx.saved_tensors
        dropout: Dropout | None = ctx.dropout
        needs_x_grad, needs_h0_grad = ctx.needs_input_grad[:2]
        key = RecurrentKey(
            self.shape, x.shape[0], x.shape[1], x.dtype, x.device, h0 is not None, bias is not None, rate is not None,
            None if dropout is None else dropout.p, ctx.all_nodes, True, needs_x_grad, needs_h0_grad,
            h_grad is not None,
        )  # fmt: skip
        if out_grad is None:
            out_grad = x.new_zeros(key.steps, key.batch, key.columns)
        x_grad = x.new_empty(x.shape) if needs_x_grad else None
        h0_grad = h0.new_empty(h0.shape) if needs_h0_grad else None
        weight_grad = weight.new_empty(weight.shape)
        bias_grad, rate_grad = (None if t is None else t.new_empty(t.shape) for t in (bias, rate))
        gradients = x_grad, h0_grad, weight_grad, bias_grad, rate_grad
        if not key.batch:
            for gradient in gradients:
                _ = None if gradient is None else gradient.zero_()
            return gradients
        tensors = {
            "out_grad": out_grad, "h_grad": h_grad, "rate": rate, "x_grad": x_grad, "h0_grad": h0_grad,
            "weight": plain(weight).index_select(0, self._field(self.shape.out_edge)),
        }  # fmt: skip
        arguments = {name: saved if tensor is None else plain(tensor) for name, tensor in tensors.items()}
        arguments |= {"key": self.packed_plan if dropout is None else dropout.key, "saved": saved}
        sums = (weight_grad, *(weight_grad if grad is None else grad for grad in (bias_grad, rate_grad)))
        backward_pass(key)(arguments, self.packed_plan, sums)
        return gradients

    def _field(self, offset: int) -> Tensor:
        """A field of the packed plan with an entry for each edge."""
        return self.packed_plan[offset : offset + self.shape.edges]
