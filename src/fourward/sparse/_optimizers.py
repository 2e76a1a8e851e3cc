"""Parameters and what optimisers keep for them, moved to the places that an edit gives their entries."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fourward.errors import OptionError, WeightError

#: One optimiser, several, or none.
Optimizers = torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None


class Move(NamedTuple):
    """A vector of parameters, and where its entries come from."""

    parameter: nn.Parameter  #: (n,)
    origin: Tensor  #: (n',) int64, the entry that each new entry was; n + k for the k-th new one
    new: Tensor  #: (k,) values of new entries


def list_optimizers(optimizer: Any) -> list[torch.optim.Optimizer]:
    """The optimisers that a user passed, those of Lightning and the like unwrapped."""
    if optimizer is None:
        return []
    listed = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    unwrapped = [getattr(each, "optimizer", each) for each in listed]
    for each in unwrapped:
        if not isinstance(each, torch.optim.Optimizer):
            raise OptionError(
                f"optimizer must be a torch.optim.Optimizer, a list of them, or None, got a {type(each).__name__}."
            )
    return unwrapped


def check_optimizers(optimizers: list[torch.optim.Optimizer], moves: list[Move]) -> None:
    """Raise for an optimiser that has none of the parameters, or a state that can't follow edges."""
    parameters = {id(move.parameter) for move in moves}
    for optimizer in optimizers:
        name = type(optimizer).__name__
        if not any(id(p) in parameters for group in optimizer.param_groups for p in group["params"]):
            raise OptionError(
                f"this {name} optimises none of the network's parameters. Pass the optimiser that was made with "
                "net.parameters(), or None if there is none yet."
            )
        for move in moves:
            for key, value in _state(optimizer, move.parameter).items():
                if not _can_move(value, move.parameter):
                    raise OptionError(
                        f"{name} keeps {key!r} for all edges together, which can't follow single ones. Use an "
                        "optimiser with a state for each weight, such as SGD, Adam, AdamW or RMSprop; or pass "
                        "optimizer=None and make a new one after the edit."
                    )


def _state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Any]:
    state: dict[str, Any] = optimizer.state.get(parameter, {})
    return state


def _can_move(value: Any, parameter: nn.Parameter) -> bool:
    """Whether a value of an optimiser's state is a number, or has an entry for each of the parameter's."""
    if isinstance(value, Tensor):
        return value.shape == parameter.shape or value.numel() == 1
    return value is None or isinstance(value, bool | int | float | str)


def move_all(optimizers: list[torch.optim.Optimizer], moves: list[Move]) -> None:
    """Move the parameters, their gradients and the optimisers' states; new entries have gradient and state 0.

    Everything is computed before anything is changed. A parameter stays the same object. Where its size stays, so does
    its memory, which DDP and others refer to.
    """
    states = []
    for move in moves:
        for optimizer in optimizers:
            state = _state(optimizer, move.parameter)
            for key, value in state.items():
                if isinstance(value, Tensor) and value.shape == move.parameter.shape:
                    states.append((state, key, _carry(value, move)))
    with torch.no_grad():
        values = [_carry(move.parameter.detach(), move, move.new) for move in moves]
        grads = [None if move.parameter.grad is None else _carry(move.parameter.grad, move) for move in moves]
        for state, key, value in states:
            if state[key].shape == value.shape:
                state[key].copy_(value)
            else:
                state[key] = value
        for move, value, grad in zip(moves, values, grads, strict=True):
            if value.shape != move.parameter.shape:
                resize(move.parameter, value)
                move.parameter.grad = grad
            else:
                move.parameter.copy_(value)
                if grad is not None and move.parameter.grad is not None:
                    move.parameter.grad.copy_(grad)


def _carry(values: Tensor, move: Move, new: Tensor | None = None) -> Tensor:
    added = values.new_zeros(len(move.new)) if new is None else new.to(values)
    return torch.cat((values, added)).index_select(0, move.origin)


def resize(parameter: nn.Parameter, values: Tensor) -> None:
    """Give a parameter values of another size.

    Its gradient accumulator lives as long as any graph that used it, such as that of the last loss, and remembers the
    size; torch makes a new one only if the dtype changes, which is why it does so here for a moment.
    """
    parameter.grad = None
    other = torch.float32 if parameter.dtype == torch.float64 else torch.float64
    parameter.data = parameter.data.new_empty(0, dtype=other)
    parameter.data = values


def check_resize(net: nn.Module, moves: list[Move]) -> None:
    """Raise for parameters that aren't plain tensors, and for those that DDP has copied into buckets of their size."""
    for move in moves:
        if type(move.parameter.data) is not Tensor:
            raise WeightError(
                f"expected plain parameters, got a {type(move.parameter.data).__name__}, as FSDP makes them. Edit the "
                "network before it is sharded."
            )
    resized = any(len(move.origin) != len(move.parameter) for move in moves)
    if not resized or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    from torch.nn.parallel import DistributedDataParallel

    for each in gc.get_objects():  # type(), as isinstance() follows weak references, also dead ones
        if issubclass(type(each), DistributedDataParallel) and any(module is net for module in each.modules()):
            raise WeightError(
                "the network is wrapped in DistributedDataParallel, whose buckets keep the number of weights. Add as "
                "many edges as you remove, as SET and RigL do, or edit the network before it is wrapped."
            )
