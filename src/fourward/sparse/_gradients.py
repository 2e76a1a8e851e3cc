"""Gradients of edges that a network doesn't have.

A pass is repeated by a network that has them, with weight 0: its outputs are the same, and the gradients of these
weights are what they would be. The gradient of the outputs is that of the pass itself, so the loss isn't needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import BoolArray, IntArray
from fourward.graph._edit import Changed, edit_graph
from fourward.sparse._rewire import Network


@dataclass
class Pass:
    """A forward pass of a network, and the gradient of what it returned."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    parameters: dict[str, Tensor]  #: copies of the weights and so on that it used
    passes: int  #: number of the pass, by which dropout draws
    training: bool
    grads: dict[int, Tensor] = field(default_factory=dict)  #: by output: a Recurrent returns two


class Recorder:
    """Records the passes of a network in which autograd takes part, until it is removed."""

    def __init__(self, net: Network) -> None:
        self.recorded: list[Pass] = []
        self._handle = net.register_forward_hook(self._record, with_kwargs=True)

    def remove(self) -> None:
        """Stop."""
        self._handle.remove()

    def _record(self, net: Any, args: Any, kwargs: Any, result: Any) -> None:
        outputs = result if isinstance(result, tuple) else (result,)
        if not any(output.requires_grad for output in outputs):
            return
        parameters = {"weight": net.weight.detach().clone()}
        parameters |= {name: p.detach().clone() for name, p in net._parameters.items() if p is not None}
        each = Pass(
            _detach(args), {k: _detach(v) for k, v in kwargs.items()}, parameters, int(net.passes), net.training
        )
        self.recorded.append(each)
        for k, output in enumerate(outputs):
            if output.requires_grad:
                output.register_hook(lambda grad, k=k: _add(each.grads, k, grad))


def absent_gradients(net: Network, passes: list[Pass], pairs: IntArray, feedback: BoolArray | None) -> Tensor:
    """(A,) the sum over passes of the gradients of absent edges, in the order of their pairs (A, 2)."""
    change = Changed(pairs, np.empty(0, np.int64), feedback=feedback)
    edited = edit_graph(net.graph, change)
    other = net._with_graph(edited.graph, net.plan.node_code[: net.graph.num_nodes])
    device = net._dtype_and_device()[1]
    index = torch.from_numpy(edited.edge).to(device)
    total = torch.zeros(len(edited.edge), device=device)
    for each in passes:
        total += _repeat(other, each, index, len(pairs)).float()
    result = total.new_empty(len(pairs))
    is_new = index >= net.graph.num_edges
    result[index[is_new] - net.graph.num_edges] = total[is_new]
    return result


def _repeat(other: Network, each: Pass, index: Tensor, new: int) -> Tensor:
    """(E + A,) the gradient of the weights of a network with more edges in a recorded pass."""
    weight = each.parameters["weight"]
    extended = nn.Parameter(torch.cat((weight, weight.new_zeros(new))).index_select(0, index))
    other._modules.pop("constraints", None)
    vars(other)["constraints"] = None
    other._parameters |= {name: nn.Parameter(p, requires_grad=False) for name, p in each.parameters.items()}
    other._parameters["weight"] = extended
    other._buffers["passes"] = torch.tensor(each.passes - 1, device=weight.device)
    vars(other)["training"] = each.training
    args = tuple(_as_dtype(value, weight.dtype) for value in each.args)
    with torch.enable_grad():
        result = other.forward(*args, **{k: _as_dtype(v, weight.dtype) for k, v in each.kwargs.items()})
        outputs = result if isinstance(result, tuple) else (result,)
        pairs = [(outputs[k], grad.to(outputs[k].dtype)) for k, grad in each.grads.items()]
        return torch.autograd.grad([out for out, _ in pairs], extended, [grad for _, grad in pairs])[0]


def _add(grads: dict[int, Tensor], k: int, grad: Tensor | None) -> None:
    if grad is not None:  # as of an output that the loss doesn't depend on
        grads[k] = grads[k] + grad.detach() if k in grads else grad.detach()


def _detach(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_detach(each) for each in value)
    return value.detach() if isinstance(value, Tensor) else value


def _as_dtype(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) else value
