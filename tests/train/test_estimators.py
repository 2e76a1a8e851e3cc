"""The estimators: the checks of scikit-learn, and what its users do."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fourward import Digraph, FourWardClassifier, FourWardRegressor, generate
from fourward.errors import DataError, OptionError

CONSTRAINTS = {"sign": {0: 1}, "scale": 2.0}  # for any graph: the default one has an input named 0


@parametrize_with_checks(
    [
        FourWardClassifier(epochs=15),
        FourWardRegressor(epochs=15),
        FourWardClassifier(epochs=30, activation="tanh", **CONSTRAINTS),
        FourWardRegressor(epochs=30, activation="tanh", **CONSTRAINTS),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_estimator_checks(estimator, check):
    check(estimator)


def test_constraints_hold_in_a_fitted_estimator():
    x, y = load_iris(return_X_y=True)
    dag = generate.erdos_renyi(30, 0.2, seed=0)
    sign, frozen = [(-1) ** v for v in range(30)], [True] * 5 + [False] * (dag.num_edges - 5)
    options = {"sign": sign, "frozen": np.array(frozen), "scale": 2.0, "random_state": 0}
    first, last = (FourWardClassifier(dag, epochs=epochs, **options).fit(x, y) for epochs in (1, 10))
    weights = [each.model_.net.weight.detach().numpy() for each in (first, last)]
    assert np.array_equal(weights[0][:5], weights[1][:5])
    assert not np.array_equal(weights[0], weights[1])
    assert (weights[1] * np.array(sign)[dag.source] >= 0).all()
    graph = Digraph.from_edges([("a", "b"), ("b", "a"), ("b", "c")], inputs=["a"], outputs=["c"])
    fitted = FourWardClassifier(graph, steps=2, epochs=1, tied=[0, 0, 1], random_state=0).fit(x, y)
    assert len(fitted.model_.net.weight.unique()) == 2


def test_pipeline_and_grid_search():
    x, y = load_iris(return_X_y=True, as_frame=True)
    names = load_iris().target_names[y]
    graphs = [generate.erdos_renyi(30, 0.2, seed=0), "mlp:4-8-3"]
    pipeline = make_pipeline(MinMaxScaler(), FourWardClassifier(epochs=40, batch_size=16, random_state=0))
    search = GridSearchCV(pipeline, {"fourwardclassifier__graph": graphs}, cv=2).fit(x, names)
    best = search.best_estimator_[-1]
    assert search.best_score_ > 0.8
    assert list(best.classes_) == ["setosa", "versicolor", "virginica"]
    assert set(search.predict(x)) == set(best.classes_)
    np.testing.assert_allclose(search.predict_proba(x).sum(1), 1)
    assert search.n_features_in_ == 4
    raw = FourWardClassifier(epochs=np.int64(1), random_state=0).fit(x, names)
    assert list(raw.feature_names_in_) == list(x.columns)


def test_a_random_state_repeats_and_none_does_not():
    x, y = load_iris(return_X_y=True)
    first = FourWardClassifier("er:30:0.2:0", epochs=3, dropout=0.2, random_state=1).fit(x, y)
    same, other = clone(first).fit(x, y), clone(first).set_params(random_state=None).fit(x, y)
    np.testing.assert_array_equal(first.predict_proba(x), same.predict_proba(x))
    assert not np.array_equal(first.predict_proba(x), other.predict_proba(x))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).predict_proba(x), first.predict_proba(x))
    state = np.random.get_state()[1].tolist()
    other.fit(x, y)
    assert np.random.get_state()[1].tolist() == state


def test_patience_and_several_targets():
    x, y = load_diabetes(return_X_y=True)
    both = np.stack((y, -2 * y), 1)
    model = FourWardRegressor(epochs=200, patience=5, random_state=0).fit(x, both)
    assert model.n_iter_ < 200
    assert model.predict(x).shape == both.shape
    assert model.score(x, both) > 0.4
    assert len(model.history_.val_loss) == model.n_iter_


def test_without_adapters_the_graph_must_fit():
    x, y = load_iris(return_X_y=True)
    model = FourWardClassifier("mlp:4-10-3", adapters=False, epochs=60, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.9
    assert model.model_.net.weight.numel() == sum(p.numel() for p in model.model_.parameters()) - 13
    with pytest.raises(DataError, match="as many outputs as there are classes: expected 3 outputs, got 2"):
        FourWardClassifier("mlp:4-10-2", adapters=False).fit(x, y)
    with pytest.raises(DataError, match="as many inputs as there are features: expected 4 inputs, got 5"):
        FourWardClassifier("mlp:5-3", adapters=False).fit(x, y)
    with pytest.raises(OptionError, match="er:64"):
        FourWardClassifier("er:64").fit(x, y)
