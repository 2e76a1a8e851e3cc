"""The worm reads digits row by row, 8 steps of 8 pixels: with its feedback, without, shuffled, and against a GRU.

    python -m benchmarks.digits_by_row --seeds 5

All networks have about as many parameters, the same linear layer in front and behind, and the same training; the answer
is read after the last row. Writes benchmarks/results/digits-by-row.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import fourward as fw
from fourward.train import fit

RESULTS = Path(__file__).parent / "results" / "digits-by-row.json"
EPOCHS, BATCH, LEARNING_RATE, NUM_TEST = 25, 64, 0.01, 450


class Reader(nn.Module):
    """A recurrent network between two linear layers; (B, 8, 8) pixels to (B, 10) logits."""

    def __init__(self, net: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        self.before, self.net, self.after = nn.Linear(8, inputs), net, nn.Linear(outputs, 10)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits after the last row."""
        y, _ = self.net(self.before(rows))
        logits: Tensor = self.after(y[:, -1])
        return logits


def worm(graph: fw.Digraph, seed: int, tau: float | None = None) -> Reader:
    """The worm, or a graph of its size, with tanh neurons."""
    constants = None if tau is None else nn.Parameter(torch.full((len(graph.neurons),), tau))
    net = fw.Recurrent(graph, "tanh", tau=constants, seed=seed, batch_first=True)
    return Reader(net, graph.num_inputs, graph.num_outputs)


def gru(seed: int, parameters: int) -> nn.Module:
    """A GRU with about as many parameters, between smaller linear layers of the same kind."""
    torch.manual_seed(seed)
    sizes = range(4, 200)
    counts = [3 * h * (8 + h + 2) + 8 * 8 + 8 + 10 * h + 10 for h in sizes]
    hidden = sizes[int(np.argmin(np.abs(np.array(counts) - parameters)))]
    return Reader(nn.GRU(8, hidden, batch_first=True), 8, hidden)


def without_feedback(graph: fw.Digraph) -> fw.Digraph:
    """The graph without its feedback edges."""
    return fw.Digraph.from_arrays(
        graph.dag.edges, labels=graph.labels, inputs=graph.inputs, outputs=graph.outputs, feedback=np.empty((0, 2), int)
    )


def shuffled(graph: fw.Digraph, seed: int) -> fw.Digraph:
    """A random graph with the same in-degree and out-degree of every neuron."""
    rng = np.random.default_rng(seed)
    source, target = graph.source.astype(np.int64), rng.permutation(graph.target.astype(np.int64))
    while True:
        keys = source * graph.num_nodes + target
        _, first = np.unique(keys, return_index=True)
        repeated = np.setdiff1d(np.arange(len(keys)), first)
        if not len(repeated):
            break
        partners = rng.integers(len(keys), size=len(repeated))
        for k, j in zip(repeated.tolist(), partners.tolist(), strict=True):
            target[k], target[j] = target[j], target[k]
    edges = np.stack((source, target), -1)
    return fw.Digraph.from_arrays(edges, labels=graph.labels, inputs=graph.inputs, outputs=graph.outputs)


def load_rows(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pixels (n, 8, 8) and classes to train on, and to test on."""
    data = load_digits()
    x = torch.tensor(data.images / 8 - 1, dtype=torch.float32)
    y = torch.tensor(data.target)
    order = torch.tensor(np.random.default_rng(seed).permutation(len(y)))
    test, train = order[:NUM_TEST], order[NUM_TEST:]
    return x[train], y[train], x[test], y[test]


def run_seed(seed: int) -> dict[str, dict[str, float]]:
    """Accuracy on the test rows, and number of parameters, of every network."""
    graph = fw.connectomes.load("c-elegans").graph
    parameters = sum(p.numel() for p in worm(graph, seed).parameters())
    makers: dict[str, Callable[[], nn.Module]] = {
        "worm with feedback": lambda: worm(graph, seed),
        "worm without feedback": lambda: worm(without_feedback(graph), seed),
        "worm without feedback, learned time constants": lambda: worm(without_feedback(graph), seed, tau=2.0),
        "shuffled, with feedback": lambda: worm(shuffled(graph, seed), seed),
        "GRU": lambda: gru(seed, parameters),
    }
    x, y, x_test, y_test = load_rows(seed)
    results = {}
    for name, make in makers.items():
        torch.manual_seed(seed)
        model = make()
        fit(model, x, y, epochs=EPOCHS, batch_size=BATCH, learning_rate=LEARNING_RATE, seed=seed)
        with torch.no_grad():
            accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
        results[name] = {"accuracy": accuracy, "parameters": sum(p.numel() for p in model.parameters())}
        print(f"seed {seed}: {name}: {accuracy:.3f}", flush=True)
    return results


def summarize(runs: list[dict[str, dict[str, float]]]) -> list[str]:
    """A Markdown row for each network: parameters, and mean accuracy with a 95 % interval over the seeds."""
    from scipy.stats import t

    lines = ["| network | parameters | accuracy (95 % interval over seeds) |", "|---|---|---|"]
    for name in runs[0]:
        values = np.array([run[name]["accuracy"] for run in runs])
        half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        lines.append(f"| {name} | {int(runs[0][name]['parameters']):,} | {values.mean():.3f} ± {half:.3f} |")
    return lines


def main() -> None:
    """Run all seeds, write the results, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    runs = []
    for seed in range(seeds):
        runs.append(run_seed(seed))
        settings = {"epochs": EPOCHS, "batch": BATCH, "learning_rate": LEARNING_RATE, "version": fw.__version__}
        RESULTS.write_text(json.dumps({"settings": settings, "runs": runs}, indent=1) + "\n")
    print("\n".join(summarize(runs)))


if __name__ == "__main__":
    main()
