"""Networks whose parameters and moments are numbers that name their edges, and their rebuilt twins."""

import numpy as np
import torch

from fourward import Dag, Digraph, FourWard, Recurrent

F64 = torch.float64
OPTIMIZERS = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01, amsgrad=True),
    "RMSprop": lambda params: torch.optim.RMSprop(params, lr=0.01, momentum=0.5, centered=True),
}


def pairs(graph):
    return [(graph.labels[u], graph.labels[v]) for u, v in graph.edges.tolist()]


def rebuild(net):
    """A network built from scratch, from the labels of the edges alone, with the same weights."""
    graph, options = net.graph, {"dtype": net._dtype_and_device()[0], "bias": net.bias is not None}
    ends = {
        "nodes": list(graph.labels),
        "inputs": [graph.labels[v] for v in graph.inputs],
        "outputs": [graph.labels[v] for v in graph.outputs],
    }
    names = dict(zip((graph.labels[v] for v in graph.neurons), net.neuron_activations(), strict=True))
    shuffled = [pairs(graph)[k] for k in np.random.default_rng(0).permutation(graph.num_edges)]
    if isinstance(net, Recurrent):
        feedback = pairs(graph)[graph.dag.num_edges :]
        tau = None if net.tau is None else net.tau.detach()
        options |= {"tau": tau, "dynamics": net.dynamics}
        other = Recurrent(Digraph.from_edges(shuffled, feedback=feedback, **ends), names or "tanh", **options)
    else:
        other = FourWard(Dag.from_edges(shuffled, **ends), names or "tanh", **options)
    assert other.graph == graph, "an edited graph is the one that its edges make"
    other.load_edge_weights(net.weight, net.bias)
    return other


def forward_and_gradients(net, x):
    """The outputs, and the gradients of the input and of all effective weights, biases and time constants."""
    x = x.clone().requires_grad_()
    result = net(x)
    outputs = result[0] if isinstance(result, tuple) else result
    weight = net.weight
    inputs = [x, weight, *(p for p in (net.bias, getattr(net, "tau", None)) if p is not None and p.requires_grad)]
    grads = torch.autograd.grad(outputs.square().sum(), inputs, allow_unused=True)
    return [outputs, *(torch.zeros_like(p) if g is None else g for p, g in zip(inputs, grads, strict=True))]
