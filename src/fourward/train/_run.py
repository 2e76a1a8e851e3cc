"""Runs: a model learns in a folder, which keeps its checkpoints, its curves and its result.

best.safetensors   the model of the lowest held-out loss
last.safetensors   the model as it stands, with all that it takes to go on
history.csv        a row for each epoch
tensorboard/       the same for TensorBoard
result.json        measures of the best model on the rows it was tested on
"""

from __future__ import annotations

import csv
import json
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback, LambdaCallback
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from fourward._files import BEST, LAST, replacing
from fourward._serialization import corrupt_file_errors
from fourward.errors import DataError, FileError, FourwardError, OptionError, TrainingError
from fourward.graph._dag import Dag
from fourward.nn._fourward import FourWard
from fourward.train import _checkpoint
from fourward.train._callbacks import TensorBoard
from fourward.train._data import Array, Data, read, split
from fourward.train._devices import leave, places
from fourward.train._fit import Best, as_samples, run_loop
from fourward.train._history import History
from fourward.train._loop import Loop, Paused, Watcher
from fourward.train._metrics import measure
from fourward.train._model import Model, Scaling
from fourward.train._options import PRECISIONS, Setup
from fourward.view._curves import activation_map, learning_curves

#: Rows of an activation map.
SHOWN = 200
#: Seconds within an epoch after which the state is kept all the same.
_LONG = 60.0


@dataclass(frozen=True)
class Result:
    """What a run came to."""

    out: Path
    history: History
    rows: dict[str, int]  #: how many there were to learn from, held out, and to test on
    measures: dict[str, Any] | None  #: of the best model on the rows it was tested on, if there are any
    model: Model  #: the best one
    shown: Tensor  #: (S, inputs) what some rows, if possible such that it was tested on, bring to its network's inputs

    @property
    def blind(self) -> bool:
        """Whether the network's outputs are the same for all that is shown to it, though that isn't."""
        with torch.no_grad():
            out = self.model.net(self.shown)
        return bool((out == out[:1]).all()) and not bool((self.shown == self.shown[:1]).all())


class Interrupted(FourwardError):  # noqa: N818 - nothing is wrong
    """Someone pressed Ctrl-C, or a cluster wants its machine back, and all is saved."""

    exit_code = 130


def start(
    graph: Dag | FourWard,
    setup: Setup,
    out: str | Path,
    *,
    direct: bool = False,
    network: Mapping[str, Any] | None = None,
    watchers: Sequence[Watcher] = (),
    **where: Any,
) -> Result | None:
    """Train a graph, or a network from the weights it has, in a new folder.

    Args:
        graph: A Dag, of which a network is made, or a network.
        setup: What to learn, and how.
        out: The folder.
        direct: No linear layers between features and inputs, and between outputs and classes or targets.
        network: Options of FourWard, for a Dag. Its outputs have no activation if `direct`, else that of the rest.
        watchers: Called after some steps and after each epoch.
        where: Devices, as `fourward.train._devices.places` gives them; default: one, a card where there is one.

    Returns:
        The result in the first process, None in others.
    """
    out = Path(out)
    first = "strategy" not in where or getattr(rank_zero_only, "rank", 0) == 0
    if first and (out / LAST).exists():
        raise OptionError(f"{out} already holds a run. Go on with it (--resume), or take another folder.")
    data = _read(setup)
    learn, _, _ = _parts(data, setup)
    if isinstance(graph, Dag):
        last = {"output_activation": "identity"} if direct else {}
        options: dict[str, Any] = {"init": "kaiming_normal", "seed": setup.options.seed}
        graph = FourWard(graph, **options | last | dict(network or {}))
    model = Model(
        graph,
        data.features,
        data.targets,
        data.classes,
        Scaling.of(data.x[learn]),
        Scaling.of(data.y[learn]) if data.classes is None else None,
        direct=direct,
        seed=setup.options.seed,
    )
    if first:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):  # or else it would be found only after the first epoch that nothing can be saved
            pass
    return _train(model, data, setup, out, None, watchers, where)


def resume(
    out: str | Path,
    *,
    graph: Dag | FourWard | None = None,
    data: str | None = None,
    watchers: Sequence[Watcher] = (),
    **where: Any,
) -> Result | None:
    """Go on with a run in its folder, as if it had never stopped.

    Args:
        out: The folder; every process must see it.
        graph: If given, checked to be the one that is trained there.
        data: Where the data is now, if it has moved.
        watchers: As in `start`.
        where: Likewise.
    """
    path = Path(out) / LAST
    model, said, state = _checkpoint.load(path)
    if said is None or state is None:
        raise FileError(f"{path} holds a model, but not the state of its training, so it can't go on.")
    with corrupt_file_errors(path):
        setup, digest = Setup.from_json(said["setup"]), said["digest"]
    if graph is not None:
        _checkpoint.check_graph(path, model, graph if isinstance(graph, Dag) else graph.dag)
    setup = replace(setup, data=setup.place() if data is None else data)
    found = _read(setup)
    if found.digest != digest:
        raise DataError(f"{setup.data} isn't the data that {out} learned from: its values are others.")
    return _train(model, found, setup, Path(out), state, watchers, where)


def _read(setup: Setup) -> Data:
    return read(setup.data, setup.target, task=setup.task, drop=setup.drop)


def _parts(data: Data, setup: Setup) -> tuple[Array, Array, Array]:
    parts = split(data.y, setup.held, setup.test, setup.options.seed)
    if len(parts[0]) == 0:
        raise DataError(f"{setup.data} has {len(data.y):,} rows, too few to learn from.")
    if setup.options.patience is not None and len(parts[1]) == 0:
        raise OptionError("patience looks at held-out rows, but none are held out: raise the share of them.")
    return parts


def _train(
    model: Model,
    data: Data,
    setup: Setup,
    out: Path,
    state: dict[str, Any] | None,
    watchers: Sequence[Watcher],
    where: dict[str, Any],
) -> Result | None:
    learn, held, test = _parts(data, setup)
    keeper = Keeper(out, model, {"setup": setup.to_json(), "digest": data.digest})
    samples, held_out = (_scaled(model, data, rows) if len(rows) else None for rows in (learn, held))
    assert samples is not None
    watching = [*watchers, TensorBoard(out / "tensorboard"), keeper]
    with corrupt_file_errors(out / LAST):
        loop = Loop(model, data.task, setup.options, samples, held_out, watching, state)
    if loop.finished:
        write_history(loop.history, out / "history.csv")  # a crash, or someone, may have come before
    else:
        _learn(loop, keeper, setup, where)
    if loop.global_rank > 0:
        return None
    best, _, _ = _checkpoint.load(out / BEST)
    measures = measure(best, data.x[test], data.y[test]) if len(test) else None
    rows = {"learn": len(learn), "held": len(held), "test": len(test)}
    said = {"epochs": loop.epoch, "best_epoch": loop.history.best_epoch + 1, "rows": rows, "test": measures}
    with replacing(out / "result.json") as temporary:
        temporary.write_text(json.dumps(said, indent=2, allow_nan=False) + "\n")
    shown = _entering(best, data.x[test if len(test) else learn][:SHOWN])
    return Result(out, loop.history, rows, measures, best, shown)


def _entering(model: Model, x: Array) -> Tensor:
    scaled = torch.as_tensor(model.scale_x.apply(x)).to(model.net.weight.dtype)
    with torch.no_grad():
        entering: Tensor = model.enter(scaled)
    return entering


def draw(result: Result) -> list[Path]:
    """Draw the learning curves, and how active each layer of the best model is; the files."""
    curves, active = result.out / "curves.png", result.out / "activations.png"
    learning_curves(result.out / "history.csv", curves)
    activation_map(result.model.net, result.shown, active)
    return [curves, active]


def _learn(loop: Loop, keeper: Keeper, setup: Setup, where: dict[str, Any]) -> None:
    go_on = f"Go on with: fourward train --out {shlex.quote(str(keeper.out))} --resume"
    try:
        with _asking(loop) as callbacks:
            run_loop(loop, precision=PRECISIONS[setup.precision], callbacks=callbacks, **where or places("auto"))
    except (Paused, KeyboardInterrupt) as stop:
        if loop.global_rank > 0:
            leave()  # with 0: another code is a failure for Lightning, which would kill the first process, still saving
        if isinstance(stop, Paused):
            raise Interrupted(f"interrupted in epoch {loop.epoch + 1}, and saved. {go_on}") from None
        if keeper.saved:
            raise Interrupted(f"interrupted at once. What was saved before is whole. {go_on}") from None
        raise
    except OSError as error:
        if not keeper.saved:
            raise
        file = f"{error.filename}: " if error.filename is not None else ""
        raise TrainingError(f"{file}{error.strerror or error}. What was saved before is whole. {go_on}") from error
    if loop.global_rank == 0:
        keeper.keep(loop)


def _scaled(model: Model, data: Data, rows: Array) -> tuple[Any, Any]:
    y = data.y[rows] if model.scale_y is None else model.scale_y.apply(data.y[rows])
    return as_samples(model.scale_x.apply(data.x[rows]), y, data.task, model.net.weight.dtype)


class Keeper(Best):
    """Keeps the best and the last model in a folder; saving takes at most about a tenth of the time."""

    def __init__(self, out: Path, model: Model, setup: dict[str, Any]) -> None:
        super().__init__()
        self.out, self.model, self.setup = out, model, setup
        self.took, self.kept = 0.0, 0.0

    @property
    def saved(self) -> bool:
        """Whether there is something to go on from."""
        return (self.out / LAST).exists()

    def after_steps(self, loop: Loop) -> None:
        """Save where epochs are long."""
        if time.perf_counter() - self.kept > max(_LONG, 10 * self.took):
            self.keep(loop)

    def after_epoch(self, loop: Loop) -> None:
        """Save, if that isn't too soon."""
        super().after_epoch(loop)
        if time.perf_counter() - self.kept > 10 * self.took:
            self.keep(loop)

    def paused(self, loop: Loop) -> None:
        """Save."""
        self.keep(loop)

    def keep(self, loop: Loop) -> None:
        """Write both checkpoints and the history, each whole."""
        start = time.perf_counter()
        loop.check_finite()
        if self.weights is not None:
            now = {name: value.clone() for name, value in self.model.state_dict().items()}
            self.model.load_state_dict(self.weights)
            _checkpoint.save(self.out / BEST, self.model, self.setup)
            self.model.load_state_dict(now)
        _checkpoint.save(self.out / LAST, self.model, self.setup, loop.state())
        write_history(loop.history, self.out / "history.csv")
        self.kept = time.perf_counter()
        self.took = self.kept - start


def write_history(history: History, path: Path) -> None:
    """A row for each epoch, counted from 1."""
    rows = history.rows()
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0] if rows else ["epoch"])
        writer.writeheader()
        writer.writerows(rows)


@contextmanager
def _asking(loop: Loop) -> Iterator[list[Callback]]:
    """The first Ctrl-C or SIGTERM asks the loop to pause; the second is as ever.

    Lightning answers SIGTERM in a way of its own, so ours takes its place once training starts: with this callback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, _: Any) -> None:
        loop.asked_to_pause = True
        signal.signal(number, before[signal.Signals(number)])

    def replace_theirs(*_: Any) -> None:
        signal.signal(signal.SIGTERM, ask)

    signal.signal(signal.SIGINT, ask)
    try:
        yield [LambdaCallback(on_train_start=replace_theirs)]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
