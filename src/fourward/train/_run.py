"""Runs: train a model in a folder that holds its checkpoints, curves and metrics.

best.safetensors   the model of the lowest validation loss
last.safetensors   the latest model, with the state to resume from
history.csv        a row per epoch
tensorboard/       the same for TensorBoard
edits.safetensors  where the wiring changes: the edges at the start, and all that were added and removed
result.json        metrics of the best model on the test rows
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch
from torch import Tensor

from fourward._files import BEST, LAST, remove_temporaries, replacing
from fourward._serialization import corrupt_file_errors
from fourward.errors import DataError, FileError, FourwardError, OptionError, Repair, TrainingError
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.train import _checkpoint
from fourward.train._callbacks import Callback, CheckpointCallback, TensorBoard
from fourward.train._config import RunConfig
from fourward.train._data import Array, Data, read_data, split
from fourward.train._devices import Devices, exit_if_distributed, size_under_torchrun
from fourward.train._fit import as_samples
from fourward.train._history import History
from fourward.train._metrics import compute_metrics
from fourward.train._model import Model, Scaling
from fourward.train._outputs import warn_of_bounded_outputs
from fourward.train._trainer import StopRequested, Trainer

_SAMPLE_INPUTS = 200  # rows of RunResult.sample_inputs


@dataclass(frozen=True)
class RunResult:
    """The result of a run."""

    out: Path  #: folder of the run
    history: History
    rows: dict[str, int]  #: number of rows in "train", "validation" and "test"
    metrics: dict[str, Any] | None  #: metrics of the best model on the test rows; None if there are none
    model: Model  #: the model of the best epoch
    sample_inputs: Tensor  #: (S, num_inputs) some rows, test rows if there are any, as the inputs of its network

    @property
    def constant_output(self) -> bool:
        """Whether the network returns the same for all sample inputs, though they differ."""
        with torch.no_grad():
            out = self.model.run_network(self.sample_inputs)
        return bool((out == out[:1]).all()) and not bool((self.sample_inputs == self.sample_inputs[:1]).all())


class ResumableError(FourwardError):
    """A run stopped early; `resume_run(error.out)` continues it from its last checkpoint."""

    exit_code = 1

    def __init__(self, message: str, out: Path) -> None:
        super().__init__(message)
        self.out = out  #: the folder of the run

    def text(self, word: Callable[[Repair], str]) -> str:
        """The message, and how to continue."""
        return f"{super().text(word)} Call fourward.train.resume_run({str(self.out)!r}) to continue."


class Interrupted(ResumableError):  # noqa: N818 - not an error
    """Ctrl-C or SIGTERM stopped a run."""

    exit_code = 130


class SaveError(ResumableError, TrainingError):
    """A checkpoint could not be written, for example because the disk is full; the one before it is intact."""


def start_run(
    graph: Dag | Digraph | FourWard | Recurrent,
    config: RunConfig,
    out: str | Path,
    *,
    adapters: bool = True,
    network: Mapping[str, Any] | None = None,
    steps: int | None = None,
    callbacks: Sequence[Callback] = (),
    device: str = "auto",
    devices: int = 1,
    num_nodes: int = 1,
) -> RunResult | None:
    """Train a graph, or a network from its current weights, in a new folder.

    Args:
        graph: A Dag or a Digraph, from which a network is made, or a network.
        config: Data and hyperparameters.
        out: The folder.
        adapters: Whether linear layers join features to inputs, and outputs to classes or targets.
        network: Options of FourWard or Recurrent, for a graph. Without adapters its outputs have no activation by
            default.
        steps: For a Digraph or a Recurrent on a table: the number of steps with the same features, after which the
            outputs are read. Sequences have theirs.
        callbacks: Called every 32 steps and after each epoch.
        device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one.
        devices: Number of devices of this machine; each batch is split over them. Ignored under torchrun, which sets
            it.
        num_nodes: Number of machines, each with as many devices. Ignored under torchrun.

    Returns:
        The result in the process of rank 0, None in the others.
    """
    out, where = Path(out), Devices(device, *size_under_torchrun(devices, num_nodes))
    if (out / LAST).exists():
        raise OptionError(f"{out} already contains a run. Continue it with resume_run, or choose another folder.")
    data = _read(config)
    train, _, _ = _split(data, config)
    _check_samples(data, graph, steps, config.data)
    if isinstance(graph, Dag | Digraph):
        outputs = {} if adapters else {"output_activation": "identity"}
        options: dict[str, Any] = {"init": "kaiming_normal", "seed": config.train.seed}
        options |= outputs | dict(network or {})
        graph = FourWard(graph, **options) if isinstance(graph, Dag) else Recurrent(graph, **options)
    model = Model(
        graph,
        data.features,
        data.targets,
        data.classes,
        Scaling.fit(data.x[train]),
        Scaling.fit(data.y[train]) if data.classes is None else None,
        adapters=adapters,
        seed=config.train.seed,
        steps=steps,
        per_step=data.per_step,
    )
    warn_of_bounded_outputs(model, data.task, _standardise(model, data, train)[1], stacklevel=2)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=out):  # fails now, and not after the first epoch, if nothing can be saved there
        pass
    return _train(model, data, config, out, None, callbacks, where)


def resume_run(
    out: str | Path,
    *,
    graph: Dag | Digraph | FourWard | Recurrent | None = None,
    data: str | None = None,
    callbacks: Sequence[Callback] = (),
    device: str = "auto",
    devices: int = 1,
    num_nodes: int = 1,
) -> RunResult | None:
    """Continue a run in its folder, to the same bits as if it had never stopped.

    Args:
        out: The folder; every process must see it.
        graph: If not None, an error is raised unless the run has this graph.
        data: Where the data is now, if it has moved.
        callbacks: As in `start_run`.
        device: As in `start_run`.
        devices: As in `start_run`.
        num_nodes: As in `start_run`.
    """
    where = Devices(device, *size_under_torchrun(devices, num_nodes))
    path = Path(out) / LAST
    model, run, state = _checkpoint.load_checkpoint(path)
    if run is None or state is None:
        raise FileError(f"{path} holds a model without the state of its training, so it can't be resumed.")
    with corrupt_file_errors(path):
        config, digest = RunConfig.from_json(run["config"]), run["digest"]
    if graph is not None:
        _checkpoint.check_graph(path, model, graph if isinstance(graph, Dag | Digraph) else graph.graph)
    config = replace(config, data=config.find_data() if data is None else data)
    samples = _read(config)
    if samples.digest != digest:
        raise DataError(f"{config.data} isn't the data that {out} was trained on: its values differ.")
    return _train(model, samples, config, Path(out), state, callbacks, where)


def _read(config: RunConfig) -> Data:
    return read_data(config.data, config.target, task=config.task, drop=config.drop)


def _check_samples(data: Data, graph: object, steps: int | None, source: str) -> None:
    """Check that the samples are sequences where steps aren't chosen, and that the network takes steps."""
    if not isinstance(graph, Digraph | Recurrent):
        if data.are_sequences:
            raise DataError(
                f"{source} holds sequences, which only networks with feedback take. Pass a Digraph, or --recurrent at "
                "the command line."
            )
    elif data.are_sequences and steps is not None:
        raise OptionError(f"{source} holds sequences, which have their own number of steps. Omit steps.")
    elif not data.are_sequences and steps is None:
        message = f"{source} is a table, so a network with feedback needs a number of steps."
        raise OptionError(message, Repair("steps", ..., "choose it, for example 5"))


def _split(data: Data, config: RunConfig) -> tuple[Array, Array, Array]:
    parts = split(data.y, config.validation, config.test, config.train.seed)
    if len(parts[0]) == 0:
        raise DataError(f"{config.data} has {len(data.y):,} rows, too few to train on.")
    if config.train.patience is not None and len(parts[1]) == 0:
        raise OptionError(
            "patience needs validation rows, but there are none.",
            Repair("validation", ..., "set aside a larger fraction of the rows"),
        )
    return parts


def _train(
    model: Model,
    data: Data,
    config: RunConfig,
    out: Path,
    state: dict[str, Any] | None,
    callbacks: Sequence[Callback],
    devices: Devices,
) -> RunResult | None:
    train, validation, test = _split(data, config)
    if state is not None and devices.rank == 0:
        remove_temporaries(out)
    board = TensorBoard(out / "tensorboard")
    checkpoint = CheckpointCallback(out, model, {"config": config.to_json(), "digest": data.digest})
    with corrupt_file_errors(out / LAST):
        trainer = Trainer(
            model,
            data.task,
            config.train,
            _standardise(model, data, train),
            _standardise(model, data, validation) if len(validation) else None,
            callbacks=[*callbacks, board, checkpoint],
            devices=devices,
            precision=config.precision,
            state=state,
        )
    if trainer.finished:
        trainer.history.to_csv(out / "history.csv")  # a crash may have prevented it
    else:
        _run_trainer(trainer, checkpoint, board)
    if devices.rank > 0:
        return None
    best, _, _ = _checkpoint.load_checkpoint(out / BEST)
    rows = {"train": len(train), "validation": len(validation), "test": len(test)}
    metrics = compute_metrics(best, data.x[test], data.y[test]) if len(test) else None
    _write_result(out, trainer.history, rows, metrics)
    sample_inputs = _network_inputs(best, data.x[test if len(test) else train][:_SAMPLE_INPUTS])
    return RunResult(out, trainer.history, rows, metrics, best, sample_inputs)


def _standardise(model: Model, data: Data, rows: Array) -> tuple[Tensor, Tensor]:
    y = data.y[rows] if model.scale_y is None else model.scale_y.apply(data.y[rows])
    return as_samples(model.scale_x.apply(data.x[rows]), y, data.task, model.net.weight.dtype)


def _run_trainer(trainer: Trainer, checkpoint: CheckpointCallback, board: TensorBoard) -> None:
    out = checkpoint.out
    try:
        with _stop_on_signal(trainer), closing(board):
            trainer.run()
        if trainer.devices.rank == 0:
            checkpoint.save(trainer)
    except StopRequested:
        if trainer.devices.rank > 0:
            exit_if_distributed()
        raise Interrupted(f"interrupted in epoch {trainer.epoch + 1}, and saved.", out) from None
    except KeyboardInterrupt:  # the second one
        if trainer.devices.rank > 0:
            exit_if_distributed()
        if not checkpoint.saved:
            raise
        raise Interrupted("interrupted at once; the last checkpoint is intact.", out) from None
    except OSError as error:
        if not out.is_dir():
            raise TrainingError(
                f"{out}, the folder of this run, was removed during training, and its checkpoints with it. Start again."
            ) from error
        if not checkpoint.saved:
            raise
        file = f"{error.filename}: " if error.filename is not None else ""
        raise SaveError(f"{file}{error.strerror or error}. The last checkpoint is intact.", out) from error


def _write_result(out: Path, history: History, rows: dict[str, int], metrics: dict[str, Any] | None) -> None:
    result = {"epochs": len(history.train_loss), "best_epoch": history.best_epoch + 1, "rows": rows, "test": metrics}
    with replacing(out / "result.json") as temporary:
        temporary.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


def _network_inputs(model: Model, x: Array) -> Tensor:
    """(rows, num_inputs) features as they reach the network."""
    scaled = torch.as_tensor(model.scale_x.apply(x)).to(model.net.weight.dtype)
    with torch.no_grad():
        inputs: Tensor = model.input_adapter(scaled)
    return inputs


@contextmanager
def _stop_on_signal(trainer: Trainer) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM asks the trainer to stop; the second has its usual effect."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in numbers}

    def request_stop(number: int, _: Any) -> None:
        trainer.stop_requested = True
        signal.signal(number, before[signal.Signals(number)])

    for number in numbers:
        signal.signal(number, request_stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
