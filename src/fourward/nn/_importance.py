"""How much the outputs, or a loss, depend on each neuron or edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fourward._arrays import IntArray
from fourward.engine._ablation import ablate
from fourward.errors import DataError, OptionError
from fourward.nn._fourward import FourWard, check_network, without_driven_inputs
from fourward.nn._interventions import clamp, probe

By = Literal["ablation", "gradient", "integrated_gradients"]
Parts = Literal["neurons", "edges"]
#: loss(outputs, y), the mean over samples, as torch.nn.functional.cross_entropy.
Loss = Callable[[Tensor, Tensor], Tensor]
_BATCH = 1024  # samples of a gradient


def importance(
    net: FourWard,
    x: Any,
    y: Any = None,
    by: By = "ablation",
    *,
    of: Parts = "neurons",
    value: float = 0.0,
    loss: Loss | None = None,
    steps: int = 32,
) -> Tensor:
    """How much the outputs depend on each neuron, or with y how much the loss does.

    "ablation" sets the activation of one neuron, or the weight of one edge, after another to `value` and computes the
    outputs anew, exactly: the result is the root of the mean squared change of the outputs over samples and outputs, or
    with y the increase of the loss. "gradient" is the change to first order: of neurons the mean over samples (and
    outputs) of |activation times gradient|, of edges |weight times gradient| of the mean.
    "integrated_gradients" is the mean |conductance|: the gradient times the change of the activation, summed along the
    path from x = 0 to x; for inputs these are integrated gradients.

    Args:
        net: The network; it is evaluated without dropout.
        x: (S, num_inputs) samples.
        y: (S,) integer classes, of which the outputs are logits; or (S,) or (S, num_outputs) targets.
        by: The method.
        of: "neurons", or "edges", by ablation or gradient.
        value: The activation of an ablated neuron, or the weight of an ablated edge.
        loss: The loss, a function of outputs and y, averaged over samples. Default: cross-entropy for integers, mean
            squared error for other targets.
        steps: Steps along the path of integrated gradients.

    Returns:
        (num_nodes,) by node index, inputs included; or (num_edges,), in the order of dag.edges.

    >>> from fourward import Dag
    >>> dag = Dag.from_edges([("a", "b"), ("b", "c")])
    >>> importance(FourWard(dag, "identity", bias=False, init=2.0), torch.ones(4, 1)).tolist()
    [4.0, 4.0, 4.0]
    """
    check_network(net)
    _check_options(by, of, steps)
    x, y, loss = _check_samples(net, x, y, loss)
    was_training, plain = net.training, without_driven_inputs(net)
    plain.eval()
    try:
        scores = _measure(plain, x, y, loss, by, of, float(value), steps)
    finally:
        net.train(was_training)
    if plain is net:
        return scores
    index = plain.dag.find_edges(net.dag.edges, by="index") if of == "edges" else np.arange(net.dag.num_nodes)
    return scores[torch.from_numpy(np.array(index))]


def _measure(
    net: FourWard, x: Tensor, y: Tensor | None, loss: Loss, by: By, of: Parts, value: float, steps: int
) -> Tensor:
    if by == "ablation":
        return _ablate(net, x, y, loss, value, of)
    if of == "edges":
        return _weigh_edges(net, x, y, loss)
    return _attribute(net, x, y, loss, steps if by == "integrated_gradients" else 0)


def _ablate(net: FourWard, x: Tensor, y: Tensor | None, loss: Loss, value: float, of: Parts) -> Tensor:
    parts: IntArray = np.arange(net.dag.num_nodes if of == "neurons" else net.dag.num_edges)
    scores = torch.zeros(len(parts), dtype=torch.float64)
    with torch.no_grad():
        intact, weight = _in_float(net(x)), net.weight
        if len(net.custom_activations):
            chunks = _silence_one_by_one(net, x, value) if of == "neurons" else _cut_one_by_one(net, x, value)
        else:
            activations = net.activations(x)
            chunks = ablate(net.plan, activations, weight, net.bias, of, parts, value, y is not None)
        target = None if y is None else y.cpu()
        base = None if target is None else loss(intact, target)
        for part, result in chunks:
            if base is not None and target is not None:
                with _in_one_thread():  # the others ablate meanwhile
                    result = torch.stack([(loss(out, target) - base).double() for out in result])
            elif result.dim() == 3:
                result = (result - intact).double().square().mean((1, 2)).sqrt()
            scores[torch.from_numpy(np.array(part))] = result
    return scores


@contextmanager
def _in_one_thread() -> Iterator[None]:
    """Run torch's operations in the calling thread alone: threads that wait for each other spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _cut_one_by_one(net: FourWard, x: Tensor, value: float) -> Iterator[tuple[IntArray, Tensor]]:
    """Edges, and (1, S, O) the outputs where the weight of one of them is `value`, as `_silence_one_by_one`."""
    weight = net.weight
    for k in range(net.dag.num_edges):
        changed = weight.clone()
        changed[k] = value
        outputs = net.runner(x, changed, net.bias, net.custom_activations, None, False)
        yield np.array([k]), _in_float(outputs)[None]


def _silence_one_by_one(net: FourWard, x: Tensor, value: float) -> Iterator[tuple[IntArray, Tensor]]:
    """Nodes, and (1, S, O) the outputs with one of them set, for activations that compiled code doesn't know."""
    dag = net.dag
    for v, label in enumerate(dag.labels):
        if v in dag.inputs:
            changed = x.clone()
            changed[:, dag.inputs.tolist().index(v)] = value
            outputs = net(changed)
        else:
            outputs = clamp(net, {label: value})(x)
        yield np.array([v]), _in_float(outputs)[None]


def _attribute(net: FourWard, x: Tensor, y: Tensor | None, loss: Loss, steps: int) -> Tensor:
    """Mean over samples of |activation times gradient|, or with `steps` of |conductance|."""
    dag, probed = net.dag, probe(net)
    total = torch.zeros(dag.num_nodes, dtype=torch.float64)
    for first in range(0, len(x), _BATCH):
        part, target = x[first : first + _BATCH], None if y is None else y[first : first + _BATCH]
        if not steps:
            product = _gradients(net, probed, part, target, loss) * net.activations(part).detach()
        else:
            product = torch.zeros(())
            for k in range(steps):
                before, after = (net.activations(part * ((k + end) / steps)).detach() for end in (0, 1))
                middle = part * ((k + 0.5) / steps)
                product = product + _gradients(net, probed, middle, target, loss) * (after - before)
        total += product.abs().double().mean(0).sum(0).cpu()
    return total / len(x)


def _gradients(net: FourWard, probed: FourWard, x: Tensor, y: Tensor | None, loss: Loss) -> Tensor:
    """(O, S, N) gradients of each output, or (1, S, N) of each sample's loss, with respect to all activations."""
    dag = net.dag
    inputs = torch.cat((x, x.new_zeros(len(x), len(dag.neurons))), -1).requires_grad_()
    outputs = probed(inputs)
    values = outputs.sum(0).unbind() if y is None else (loss(outputs, y) * len(x),)
    grads = [torch.autograd.grad(each, inputs, retain_graph=True)[0] for each in values]
    index = torch.from_numpy(np.argsort(np.concatenate((dag.inputs, dag.neurons)))).to(x.device)
    return torch.stack(grads)[..., index]


def _weigh_edges(net: FourWard, x: Tensor, y: Tensor | None, loss: Loss) -> Tensor:
    """|weight times gradient| of the mean over samples, averaged over outputs."""
    weight = net.weight.detach().requires_grad_()
    outputs = net.runner(x, weight, net.bias, net.custom_activations, None, False)
    values = outputs.mean(0).unbind() if y is None else (loss(outputs, y),)
    grads = [torch.autograd.grad(each, weight, retain_graph=True)[0].double() for each in values]
    return (torch.stack(grads) * weight.detach()).abs().mean(0).cpu()


def _in_float(outputs: Tensor) -> Tensor:
    return outputs.detach().cpu().to(torch.float64 if outputs.dtype == torch.float64 else torch.float32)


def _check_options(by: str, of: str, steps: int) -> None:
    methods = ("ablation", "gradient", "integrated_gradients")
    if by not in methods:
        raise OptionError(f"by must be one of {', '.join(map(repr, methods))}, got {by!r}.")
    if of not in ("neurons", "edges") or (of == "edges" and by == "integrated_gradients"):
        raise OptionError(
            f"of must be 'neurons', or 'edges' with by='ablation' or by='gradient', got {of!r} with by={by!r}."
        )
    if not isinstance(steps, int) or steps < 1:
        raise OptionError(f"steps must be a positive int, got {steps!r}.")


def _check_samples(net: FourWard, x: Any, y: Any, loss: Loss | None) -> tuple[Tensor, Tensor | None, Loss]:
    like = next(net.parameters())
    x = torch.as_tensor(x).detach().to(like)
    if x.dim() != 2 or x.shape[1] != net.dag.num_inputs or not len(x):
        raise DataError(
            f"expected x of shape (samples, {net.dag.num_inputs}), with at least one sample, got {tuple(x.shape)}."
        )
    if y is None:
        return x, None, loss or functional.mse_loss
    y = torch.as_tensor(y).to(like.device)
    if len(y) != len(x):
        raise DataError(f"expected as many targets as samples, {len(x):,}, got {len(y):,}.")
    if loss is not None:
        return x, y, loss
    if not y.is_floating_point() and y.dim() == 1:
        if y.min() < 0 or y.max() >= net.dag.num_outputs:
            raise DataError(f"expected classes from 0 to {net.dag.num_outputs - 1}, one per output, got others.")
        return x, y.long(), functional.cross_entropy
    y = y.to(like.dtype).reshape(len(y), -1)
    if y.shape[1] != net.dag.num_outputs:
        raise DataError(
            f"expected {net.dag.num_outputs} targets for each sample, as many as outputs, got {y.shape[1]}."
        )
    return x, y, functional.mse_loss
