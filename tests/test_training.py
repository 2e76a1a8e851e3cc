"""From equal weights, FourWard and the paper's method have the same loss curves."""

import torch
from sklearn.datasets import load_digits

from fourward import Dag, FourWard, generate, paper


def losses(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int) -> list[float]:
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    curve = []
    for step in range(steps):
        rows = torch.arange(step * 64, step * 64 + 64) % len(x)
        loss = torch.nn.functional.cross_entropy(net(x[rows]), y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        curve.append(loss.item())
    return curve


def test_loss_curves_agree_on_digits():
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float64)
    y = torch.tensor(digits.target)
    mlp = generate.rewired_mlp([64, 60, 40, 10], 0.3, seed=0)
    dag = Dag.from_edges(mlp.edges, nodes=mlp.num_nodes, inputs=range(64), outputs=range(164, 174))
    net = FourWard(dag, output_activation="identity", dtype=torch.float64, seed=0)
    masked = paper.Masked4Ward(dag, output_activation="identity", dtype=torch.float64, seed=1)
    masked.load_edge_weights(net.weight, net.bias)
    actual, expected = losses(net, x, y, 120), losses(masked, x, y, 120)
    assert max(abs(a - b) for a, b in zip(actual, expected, strict=True)) < 1e-9
    assert sum(actual[-10:]) < 0.25 * sum(actual[:10]), "and they do learn"
