"""Populations for any engine: the members as one network, without edges between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from fourward.engine._interface import PopulationRunner, Runner, index_tensor
from fourward.plan._plan import Plan
from fourward.plan._population_plan import PopulationPlan


class UnionRunner(PopulationRunner):
    """An engine's runner of the union; another one, where members have inputs of their own, once x is (P, B, I).

    Args:
        plan: The population.
        prepare: The engine's method of this name.
    """

    def __init__(self, plan: PopulationPlan, prepare: Callable[[Plan], Runner]) -> None:
        super().__init__()
        self.plan, self.prepare = plan, prepare
        self.unions = nn.ModuleDict()

    def describe(self) -> str:
        """The strategy of the engine's runner."""
        return "\n".join(filter(None, ("members are computed as one network", self._union(False).describe())))

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None, custom: nn.ModuleList) -> Tensor:
        """Compute a batch for all members."""
        union = self._union(x.dim() == 3)
        if next(union.buffers()).device != x.device:
            union.to(x.device)
        return union(x, weight, bias, custom)  # type: ignore[no-any-return]

    def _union(self, separate: bool) -> _Union:
        name = "separate" if separate else "shared"
        if name not in self.unions:
            # Outside of any transform and inference mode: its tensors serve all later passes.
            with torch._C._DisableFuncTorch(), torch.inference_mode(False):
                self.unions[name] = _Union(self.plan, self.prepare, separate)
        return self.unions[name]  # type: ignore[return-value]


class _Union(nn.Module):
    columns: Tensor

    def __init__(self, plan: PopulationPlan, prepare: Callable[[Plan], Runner], separate: bool) -> None:
        super().__init__()
        self.plan = plan
        self.runner = prepare(plan.separate_union if separate else plan.union)
        columns = np.unique(plan.union_outputs(separate), return_inverse=True)[1]
        self.register_buffer("columns", index_tensor(columns), persistent=False)

    def describe(self) -> str:
        return self.runner.describe()

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None, custom: nn.ModuleList) -> Tensor:
        batch, members = x.shape[-2], self.plan.num_members
        if x.dim() == 3:
            x = x.transpose(0, 1).reshape(batch, members * x.shape[-1])
        out = self.runner(x, weight, bias, custom, None, False).index_select(1, self.columns)
        return out.reshape(batch, members, self.plan.num_outputs).transpose(0, 1)  # type: ignore[no-any-return]
