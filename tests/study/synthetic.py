"""Synthetic rows, whose results are known."""

from fourward.study._datasets import DATASETS
from fourward.study._matched import TOPOLOGIES
from fourward.study._store import Store

ENVIRONMENT = {
    "processor": "a processor",
    "cores": 2,
    "threads": 1,
    "card": None,
    "commit": "abc",
    "versions": {"torch": "2"},
}
HOSTILE = "<script>alert('x')</script> & \"Sons\""
SIZES, DENSITIES, BATCHES = (64, 128, 256), (0.2, 0.4, 0.8, 1.0), (32, 512)


def height(size, p):
    return round(size * (0.2 + 0.8 * p))


def seconds(method, size, p, batch):
    """As in the paper: 4Ward grows with the height, sequential with the size and deepstruct with its square."""
    return {
        "4ward": 1e-4 * height(size, p) * 1.25,
        "sequential": 1e-4 * size,
        "deepstruct": 1e-6 * height(size, p) ** 2 * 12,
        "fourward": 1e-6 * height(size, p),
    }[method]


def add_times(store, experiment="times", *, method_seconds=seconds, seeds=2, cut=(), skip=(), device="cpu"):
    for size in SIZES:
        for p in DENSITIES:
            for batch in BATCHES:
                for method in ("sequential", "deepstruct", "4ward", "fourward"):
                    for seed in range(seeds):
                        if (size, p) in skip:
                            continue
                        key = {"size": size, "p": p, "batch": batch, "seed": seed, "method": method}
                        key |= {"device": device, "batches": 10}
                        mean = method_seconds(method, size, p, batch) * (1 + 0.01 * seed)
                        values = {"mean": mean, "median": mean, "deviation": 0.1 * mean, "count": 10}
                        values |= {"height": height(size, p), "edges": 10 * size}
                        if (method, size, p) in cut:
                            store.add(experiment, key, {"count": 0}, status="cut off", note="10 s are over")
                        else:
                            store.add(experiment, key, values, seconds=1.0)


def add_attributes(store):
    for size in SIZES:
        for p in DENSITIES:
            for seed in range(3):
                values = {"height": height(size, p), "attenuation": size / height(size, p)}
                store.add("attributes", {"size": size, "p": p, "seed": seed}, values)


def add_reassignment(store, *, deviation=0.02, noise=0.01, moved=0.25, device="cpu", size=64, batch=512, slower=0.0):
    """The second graph takes longer by the fraction `slower`; at p = 1 times vary by noise alone."""
    for p in DENSITIES:
        for graph in range(2):
            for variant in range(3):
                key = {"size": size, "p": p, "batch": batch, "graph": graph, "variant": variant, "method": "4ward"}
                mean = seconds("4ward", size, p, batch) * (1 + (deviation if p < 1 else noise) * (variant - 1))
                values = {"mean": mean, "median": mean, "deviation": 0.0, "count": 10, "height": height(size, p)}
                values["mean"] *= 1 + slower * graph
                values["moved"] = moved * (1.0 - p) / 0.8
                store.add("reassignment", key | {"device": device, "batches": 10}, values)


def add_topologies(store, *, seeds=3, datasets=tuple(DATASETS)):
    for t, topology in enumerate(TOPOLOGIES):
        for data in datasets:
            for seed in range(seeds):
                accuracy = 0.9 - 0.02 * t + 0.01 * seed
                curve = [accuracy, accuracy - 0.2, 0.3]
                values = {"accuracy": accuracy, "chance": 0.25, "train_loss": [1.0, 0.5], "held_loss": [1.0, 0.6]}
                values["damage"] = {"shares": [0.0, 0.3, 0.9], "edges": curve, "neurons": curve[::-1]}
                values |= {"neurons": 302, "edges": 2542, "parameters": 4000, "height": 30}
                key = {"topology": topology, "data": data, "seed": seed, "epochs": 2}
                store.add("topologies", key, values)


def write_study(path):
    """A complete study on a machine with a hostile name, part of it cut off and part of it not run."""
    with Store(path, environment={**ENVIRONMENT, "processor": HOSTILE}) as store:
        cut = {("deepstruct", 256, 1.0), ("deepstruct", 256, 0.8)}
        add_times(store, cut=cut, skip={(256, 0.4)})
        add_times(store, "training", cut=cut)
        add_attributes(store)
        add_reassignment(store)
        add_topologies(store, datasets=("digits", "wine"))
    return path
