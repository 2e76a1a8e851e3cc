"""scikit-learn estimators whose network is any graph: for pipelines, grid search, cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward.errors import OptionError, require
from fourward.graph import generate
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.graph._spec import resolve_digraph, resolve_graph
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.train._config import Schedule
from fourward.train._data import Array, split
from fourward.train._model import Model, Scaling

require("sklearn", "train")
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # noqa: E402 - after the check that it is installed
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data  # noqa: E402

_FIT_OPTIONS = (
    "epochs",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "schedule",
    "label_smoothing",
    "patience",
    "device",
)


class _Estimator(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """What both share: building the model, training it, predicting."""

    def __init__(
        self,
        graph: Dag | Digraph | str | None = None,
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        adapters: bool = True,
        epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-2,
        weight_decay: float = 1e-2,
        schedule: Schedule = "one-cycle",
        label_smoothing: float = 0.0,
        patience: int | None = None,
        validation_fraction: float = 0.15,
        random_state: Any = None,
        device: str = "cpu",
        steps: int | None = None,
        sign: Any = None,
        frozen: Any = None,
        tied: Any = None,
        scale: Any = None,
    ) -> None:
        self.steps = steps
        self.sign, self.frozen, self.tied, self.scale = sign, frozen, tied, scale
        self.graph, self.activation, self.dropout, self.adapters = graph, activation, dropout, adapters
        self.epochs, self.batch_size, self.learning_rate = epochs, batch_size, learning_rate
        self.weight_decay, self.schedule, self.label_smoothing = weight_decay, schedule, label_smoothing
        self.patience, self.validation_fraction = patience, validation_fraction
        self.random_state, self.device = random_state, device

    def _fit(self, x: Array, y: Array, classes: list[Any] | None) -> None:
        from fourward.train._fit import fit

        seed = _draw_seed(self.random_state)
        fraction = self.validation_fraction if self.patience is not None else 0.0
        train, validation, _ = split(y, fraction, 0.0, seed)
        model = self._make_model(x[train], y[train], classes, seed)
        targets = y if model.scale_y is None else model.scale_y.apply(y)
        scaled = model.scale_x.apply(x)
        self.history_ = fit(
            model,
            scaled[train],
            targets[train],
            task=model.task,
            validation=(scaled[validation], targets[validation]) if len(validation) else None,
            seed=seed,
            **{name: getattr(self, name) for name in _FIT_OPTIONS},
        )
        self.model_, self.n_iter_ = model, len(self.history_.train_loss)

    def _make_model(self, x: Array, y: Array, classes: list[Any] | None, seed: int) -> Model:
        width = y.shape[1] if classes is None else len(classes)
        options: dict[str, Any] = {"init": "kaiming_normal", "dropout": self.dropout, "seed": seed}
        options["output_activation"] = None if self.adapters else "identity"
        options |= {name: getattr(self, name) for name in ("sign", "frozen", "tied", "scale")}
        graph = self._make_graph(x.shape[1], width)
        net: FourWard | Recurrent
        if isinstance(graph, Digraph):
            net = Recurrent(graph, self.activation, **options)
        else:
            net = FourWard(graph, self.activation, **options)
        return Model(
            net,
            [f"x{k}" for k in range(x.shape[1])],
            [f"y{k}" for k in range(width if classes is None else 1)],
            classes,
            Scaling.fit(x),
            Scaling.fit(y) if classes is None else None,
            adapters=self.adapters,
            seed=seed,
            steps=self.steps,
        )

    def _make_graph(self, features: int, width: int) -> Dag | Digraph:
        if self.graph is None:
            dag = generate.rewired_mlp([features, 32, 32, width], 0.25, seed=0)
            return dag if self.steps is None else Digraph.from_edges(dag.edges, nodes=dag.num_nodes)
        if isinstance(self.graph, str):
            return resolve_graph(self.graph).dag if self.steps is None else resolve_digraph(self.graph).graph
        if isinstance(self.graph, Digraph) and self.steps is None:
            raise OptionError("a Digraph needs a number of steps. Pass steps=5, for example.")
        return self.graph

    def _predict(self, X: Any) -> Array:
        check_is_fitted(self)
        return self.model_.predict(validate_data(self, X, reset=False, dtype=np.float64))


class FourWardClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc] # scikit-learn has no types
    """scikit-learn classifier whose network is any graph.

    Features are standardised. Linear adapters join them to the network's inputs, and its outputs to the classes.

    Args:
        graph: A Dag or a Digraph, or a description of one: a graph file, "er:64:0.2:0", "c-elegans". Default: an MLP
            with two hidden layers of 32 neurons that fits the data, a quarter of whose edges are rewired at random.
        activation: Activation of all neurons.
        dropout: Probability of dropping a hidden neuron in a step.
        adapters: Whether there are linear adapters. Without them, features are the inputs, outputs are the classes or
            targets and have no activation, and the numbers must match.
        epochs: Maximum number of passes over the samples.
        batch_size: Samples per step.
        learning_rate: Maximum of AdamW's learning rate schedule.
        weight_decay: Weight decay of AdamW.
        schedule: "one-cycle", "cosine" or "constant".
        label_smoothing: Label smoothing, in classification.
        patience: Stop after this many epochs without a lower validation loss, and restore the best weights.
        validation_fraction: Fraction of the samples to set aside for validation, if there is a patience.
        random_state: Seed of the weights, dropout, the order of the samples and the validation split; None draws one
            from the system.
        device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one.
        steps: Keep the feedback of the graph, a Digraph or a description of one, and read the outputs after this
            number of steps with the same features. None: a Dag.
        sign: Constraints on the weights, as of `fourward.FourWard`: neurons or edges that keep a sign.
        frozen: Edges that keep their initial weight.
        tied: Edges that share a parameter.
        scale: What the parameters are multiplied by.

    After `fit` it has `classes_`, `history_`, `n_iter_` and `model_`, a `fourward.train.Model` whose `net` is the
    network.

    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> FourWardClassifier("er:40:0.2:0", epochs=30, random_state=0).fit(x, y).score(x, y) > 0.9
    True
    """

    def fit(self, X: Any, y: Any) -> FourWardClassifier:
        """Train on samples (n, features) and their classes (n,)."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        self._fit(X, indices, self.classes_.tolist())
        return self

    def predict_proba(self, X: Any) -> Array:
        """(n, classes) probabilities, in the order of `classes_`."""
        return self._predict(X)

    def predict(self, X: Any) -> Array:
        """(n,) the most probable classes."""
        probabilities = self._predict(X)
        predicted: Array = self.classes_[probabilities.argmax(1)]
        return predicted


class FourWardRegressor(RegressorMixin, _Estimator):  # type: ignore[misc] # scikit-learn has no types
    """scikit-learn regressor whose network is any graph, for one target or several.

    Features and targets are standardised. For the arguments see `FourWardClassifier`.

    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> FourWardRegressor("er:40:0.2:0", epochs=30, random_state=0).fit(x, y).score(x, y) > 0.4
    True
    """

    def fit(self, X: Any, y: Any) -> FourWardRegressor:
        """Train on samples (n, features) and their targets (n,) or (n, targets)."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        self._single_target = y.ndim == 1
        self._fit(X, y.astype(np.float64).reshape(len(y), -1), None)
        return self

    def predict(self, X: Any) -> Array:
        """(n,) or (n, targets) as in `fit`."""
        predicted = self._predict(X)
        return predicted[:, 0] if self._single_target else predicted


def _draw_seed(random_state: Any) -> int:
    if random_state is None:  # check_random_state would draw from NumPy's global state
        return int(np.random.SeedSequence().generate_state(1)[0])
    return int(check_random_state(random_state).randint(2**31 - 1))
