"""Enters: a network or a graph, and data. Leaves: trained networks, their learning curves, their checkpoints.

Never belongs here: kernels, pictures, comparisons of many networks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fourward.train._callbacks import Callback
    from fourward.train._checkpoint import Checkpoint, load_checkpoint, save_checkpoint
    from fourward.train._config import RunConfig, TrainConfig
    from fourward.train._data import Data, bundled, read_data, split
    from fourward.train._edits import Edits, read_edits
    from fourward.train._estimators import FourWardClassifier, FourWardRegressor
    from fourward.train._evaluate import evaluate
    from fourward.train._fit import fit
    from fourward.train._history import History
    from fourward.train._lightning import RewiringCallback
    from fourward.train._metrics import compute_metrics
    from fourward.train._model import Model, Scaling
    from fourward.train._run import Interrupted, RunResult, SaveError, resume_run, start_run

#: Modules of the public names, imported on first use: torch, scikit-learn and pandas take seconds.
_MODULES = {
    "Callback": "_callbacks",
    "Checkpoint": "_checkpoint",
    "Data": "_data",
    "Edits": "_edits",
    "FourWardClassifier": "_estimators",
    "FourWardRegressor": "_estimators",
    "History": "_history",
    "Interrupted": "_run",
    "Model": "_model",
    "RewiringCallback": "_lightning",
    "RunConfig": "_config",
    "RunResult": "_run",
    "SaveError": "_run",
    "Scaling": "_model",
    "TrainConfig": "_config",
    "bundled": "_data",
    "compute_metrics": "_metrics",
    "evaluate": "_evaluate",
    "fit": "_fit",
    "load_checkpoint": "_checkpoint",
    "read_data": "_data",
    "read_edits": "_edits",
    "resume_run": "_run",
    "save_checkpoint": "_checkpoint",
    "split": "_data",
    "start_run": "_run",
}

__all__ = [
    "Callback",
    "Checkpoint",
    "Data",
    "Edits",
    "FourWardClassifier",
    "FourWardRegressor",
    "History",
    "Interrupted",
    "Model",
    "RewiringCallback",
    "RunConfig",
    "RunResult",
    "SaveError",
    "Scaling",
    "TrainConfig",
    "bundled",
    "compute_metrics",
    "evaluate",
    "fit",
    "load_checkpoint",
    "read_data",
    "read_edits",
    "resume_run",
    "save_checkpoint",
    "split",
    "start_run",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fourward.train' has no attribute {name!r}")
    module = import_module(f"fourward.train.{_MODULES[name]}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
