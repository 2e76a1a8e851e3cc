"""A graph as an estimator of scikit-learn: for pipelines, grid search, cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward.errors import require
from fourward.graph import generate
from fourward.graph._dag import Dag
from fourward.graph._spec import find
from fourward.nn._fourward import FourWard
from fourward.train._data import Array, split
from fourward.train._model import Model, Scaling
from fourward.train._options import Schedule

require("sklearn", "train")
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # noqa: E402 - after the check that it is there
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data  # noqa: E402


class _Estimator(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """What both share: making the network, training it, asking it."""

    def __init__(
        self,
        graph: Dag | str | None = None,
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        direct: bool = False,
        epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-2,
        weight_decay: float = 1e-2,
        schedule: Schedule = "one-cycle",
        smoothing: float = 0.0,
        patience: int | None = None,
        validation_fraction: float = 0.15,
        random_state: Any = None,
        device: str = "cpu",
    ) -> None:
        self.graph, self.activation, self.dropout, self.direct = graph, activation, dropout, direct
        self.epochs, self.batch_size, self.learning_rate = epochs, batch_size, learning_rate
        self.weight_decay, self.schedule, self.smoothing = weight_decay, schedule, smoothing
        self.patience, self.validation_fraction = patience, validation_fraction
        self.random_state, self.device = random_state, device

    def _learn(self, x: Array, y: Array, classes: list[Any] | None) -> None:
        from fourward.train._fit import fit

        seed = _seed(self.random_state)
        held = self.validation_fraction if self.patience is not None else 0.0
        rows, out, _ = split(y, held, 0.0, seed)
        model = self._model(x[rows], y[rows], classes, seed)
        targets = y if model.scale_y is None else model.scale_y.apply(y)
        scaled = model.scale_x.apply(x)
        options = (
            "epochs",
            "batch_size",
            "learning_rate",
            "weight_decay",
            "schedule",
            "smoothing",
            "patience",
            "device",
        )
        self.history_ = fit(
            model,
            scaled[rows],
            targets[rows],
            task=model.task,
            held=(scaled[out], targets[out]) if len(out) else None,
            seed=seed,
            **{name: getattr(self, name) for name in options},
        )
        self.model_, self.n_iter_ = model, len(self.history_.train_loss)

    def _model(self, x: Array, y: Array, classes: list[Any] | None, seed: int) -> Model:
        width = y.shape[1] if classes is None else len(classes)
        net = FourWard(
            self._dag(x.shape[1], width),
            self.activation,
            "identity" if self.direct else None,
            init="kaiming_normal",
            dropout=self.dropout,
            seed=seed,
        )
        return Model(
            net,
            [f"x{k}" for k in range(x.shape[1])],
            [f"y{k}" for k in range(width if classes is None else 1)],
            classes,
            Scaling.of(x),
            Scaling.of(y) if classes is None else None,
            direct=self.direct,
            seed=seed,
        )

    def _dag(self, features: int, width: int) -> Dag:
        if self.graph is None:
            return generate.rewired_mlp([features, 32, 32, width], 0.25, seed=0)
        return self.graph if isinstance(self.graph, Dag) else find(self.graph).dag

    def _ask(self, X: Any) -> Array:
        check_is_fitted(self)
        return self.model_.predict(validate_data(self, X, reset=False, dtype=np.float64))


class FourWardClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc] # scikit-learn has no types
    """A classifier of scikit-learn whose network is any graph.

    Features are standardised within, and linear layers join them to the inputs, and the outputs to the classes.

    Args:
        graph: A Dag, or a word for one: a graph file, "er:64:0.2:0", "c-elegans". Default: an MLP with two hidden
            layers of 32 neurons that fits the data, a quarter of whose edges were moved to random places.
        activation: Of all neurons.
        dropout: Share of hidden neurons to drop in a step.
        direct: No linear layers: features are inputs, outputs are classes or targets, and have no activation.
        epochs: Most times that all samples are seen.
        batch_size: Samples of a step.
        learning_rate: Of AdamW; the highest that the schedule reaches.
        weight_decay: Of AdamW.
        schedule: "one-cycle", "cosine" or "constant".
        smoothing: Of the labels, in classification.
        patience: Stop after so many epochs without a lower loss on held-out samples, and keep the best weights.
        validation_fraction: Share of the samples to hold out, if there is a patience.
        random_state: Seed of the weights, of dropout, of the order of the samples and of what is held out; None takes
            a fresh one from the system.
        device: "cpu", "cuda", "cuda:1", or "auto".

    After `fit` it has `classes_`, `history_`, `n_iter_` and `model_`, a `fourward.train._model.Model` whose `net` is
    the network.

    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> FourWardClassifier("er:40:0.2:0", epochs=30, random_state=0).fit(x, y).score(x, y) > 0.9
    True
    """

    def fit(self, X: Any, y: Any) -> FourWardClassifier:
        """Learn from samples (n, features) and their classes (n,)."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        self._learn(X, numbers, self.classes_.tolist())
        return self

    def predict_proba(self, X: Any) -> Array:
        """(n, classes) probabilities, in the order of `classes_`."""
        return self._ask(X)

    def predict(self, X: Any) -> Array:
        """(n,) the most probable classes."""
        probabilities = self._ask(X)
        found: Array = self.classes_[probabilities.argmax(1)]
        return found


class FourWardRegressor(RegressorMixin, _Estimator):  # type: ignore[misc] # scikit-learn has no types
    """A regressor of scikit-learn whose network is any graph, for one target or several.

    Features and targets are standardised within. For the arguments see `FourWardClassifier`.

    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> FourWardRegressor("er:40:0.2:0", epochs=30, random_state=0).fit(x, y).score(x, y) > 0.4
    True
    """

    def fit(self, X: Any, y: Any) -> FourWardRegressor:
        """Learn from samples (n, features) and their targets (n,) or (n, targets)."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        self._flat = y.ndim == 1
        self._learn(X, y.astype(np.float64).reshape(len(y), -1), None)
        return self

    def predict(self, X: Any) -> Array:
        """(n,) or (n, targets) as in `fit`."""
        said = self._ask(X)
        return said[:, 0] if self._flat else said


def _seed(random_state: Any) -> int:
    if random_state is None:  # scikit-learn would draw from NumPy's global state
        return int(np.random.SeedSequence().generate_state(1)[0])
    return int(check_random_state(random_state).randint(2**31 - 1))
