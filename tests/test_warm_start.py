"""A warm start goes on from where the last fit ended: on the same rows as if it had not stopped, else from the same function."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from test_conjugate import precision

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.estimators._resume import Model
from sklearn_sgmcmc.likelihoods import HomoscedasticNoise
from sklearn_sgmcmc.network import MLP

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SMALL = {"hidden_layer_sizes": (4,), "random_state": 0, "n_chains": 5, "n_draws": 8, "max_iter": 40, "warm_up": 5}
ESTIMATORS = [BayesianMLPClassifier, BayesianMLPRegressor]
both = pytest.mark.parametrize("estimator", ESTIMATORS)


def problem(estimator, n=50, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 3)
    y = X[:, 0] + 0.3 * rng.randn(n)
    return X, np.array(["a", "b", "c"])[np.digitize(y, [-0.5, 0.5])] if estimator is BayesianMLPClassifier else y


@both
def test_without_it_a_second_fit_is_the_first_again(estimator):
    X, y = problem(estimator)
    model = estimator(**SMALL).fit(X, y)
    first = model.draws_
    np.testing.assert_array_equal(model.fit(X, y).draws_, first)


@both
@pytest.mark.parametrize("settings", [{}, {"batch_size": 10}, {"sampler": "sghmc"}, {"sampler": "mala", "noise": 0.5}])
def test_on_the_same_rows_the_chains_go_on(estimator, settings):
    if estimator is BayesianMLPClassifier:
        settings = {name: value for name, value in settings.items() if name != "noise"}
    X, y = problem(estimator)
    model = estimator(warm_start=True, **SMALL, **settings).fit(X, y)
    first, rate, curve = model.draws_, model.learning_rate_, model.potential_curve_
    model.fit(X, y)
    np.testing.assert_array_equal(model.learning_rate_, rate)
    assert model.draws_.shape == first.shape
    assert not (model.draws_ == first).all(axis=2).any()  # new random numbers
    assert model.n_iter_ == 40
    if "batch_size" not in settings:
        np.testing.assert_array_equal(model.potential_curve_[0], curve[-1])  # no warm-up and no random start between


@pytest.mark.parametrize("sampler", ["sgld", "mclmc"])
def test_workers_do_not_change_a_bit_of_chains_that_go_on(sampler):
    X, y = problem(BayesianMLPRegressor)
    one, two = (BayesianMLPRegressor(warm_start=True, sampler=sampler, n_jobs=jobs, **SMALL).fit(X, y) for jobs in (None, 2))
    for inputs in (X, 2.0 * X):  # the same law, and another
        np.testing.assert_array_equal(one.fit(inputs, y).draws_, two.fit(inputs, y).draws_)


def test_an_optimiser_stopped_halfway_is_one_that_did_not_stop():
    X, y = problem(BayesianMLPRegressor)
    settings = SMALL | {"sampler": "sgd", "learning_rate": 0.01, "warm_up": 0, "noise": "homoscedastic"}
    straight = BayesianMLPRegressor(**settings | {"max_iter": 80}).fit(X, y)
    model = BayesianMLPRegressor(warm_start=True, **settings).fit(X, y).fit(X, y)
    np.testing.assert_array_equal(model.draws_, straight.draws_)


@both
@pytest.mark.parametrize("batch_size", ["auto", 7])
@pytest.mark.parametrize("max_iter", [1, 40])
def test_n_iter_is_max_iter_at_every_fit(estimator, batch_size, max_iter):
    X, y = problem(estimator)
    model = estimator(warm_start=True, **SMALL | {"max_iter": max_iter, "batch_size": batch_size, "n_draws": 1})
    for _ in range(3):
        assert model.fit(X, y).n_iter_ == max_iter


def test_more_rows_are_nearer_their_posterior_than_after_a_fresh_fit_of_equal_length():
    rng = np.random.RandomState(0)
    X = rng.randn(400, 3)
    y = X @ [1.0, -0.5, 0.2] + rng.randn(400)
    H, mean = precision(X, y)
    settings = {"sampler": "sgld", "noise": 1.0, "prior": "normal", "learning_rate": 0.05, "n_chains": 64, "random_state": 0}
    settings |= {"warm_up": 0, "batch_size": 400, "n_draws": 5}
    short = settings | {"max_iter": 20}
    warm = BayesianMLPRegressor((), warm_start=True, **settings, max_iter=300).fit(X[:300], y[:300])
    warm.set_params(max_iter=20).fit(X, y)
    fresh = BayesianMLPRegressor((), **short).fit(X, y)
    distance = [np.sqrt(np.mean((m.draws_ - mean) @ H * (m.draws_ - mean)) * 1.0) for m in (warm, fresh)]
    assert distance[0] < 1.2  # 1 at the posterior
    assert distance[0] < 0.7 * distance[1]


@pytest.mark.parametrize("hidden", [(), (4,), (5, 4)])
def test_new_scales_leave_the_function_what_it_was(hidden):
    rng = np.random.RandomState(0)
    X, Y = 3.0 + 2.0 * rng.randn(40, 3), 5.0 + rng.randn(40, 2)
    settings = SMALL | {"hidden_layer_sizes": hidden, "noise": "homoscedastic", "n_draws": 1, "dtype": "float64"}
    old, new = (BayesianMLPRegressor(**settings).fit(c * X + d, 3 * c * Y - d) for c, d in ((1.0, 0.0), (7.0, -2.0)))
    theta = old._model().carried(old._last.state.theta, new._model())
    assert isinstance(old._model(), Model)
    for model, draws in ((old, old._last.state.theta), (new, theta)):
        model.draws_ = draws[None].astype(np.float64)
    np.testing.assert_allclose(new.predict(X), old.predict(X), rtol=1e-6)
    np.testing.assert_allclose(new.predict_noise(X), old.predict_noise(X), rtol=1e-3)  # exact, but for the floor of the noise


def test_equal_scales_leave_the_bits():
    network = MLP((3, 4, 1), "relu")
    model = BayesianMLPRegressor(**SMALL).fit(*problem(BayesianMLPRegressor))._model()
    theta = torch.randn(2, network.n_params).numpy()
    assert model.carried(theta, model) is not None
    np.testing.assert_array_equal(model.carried(theta, model), theta)


def test_other_rows_and_units_are_learned():
    X, y = problem(BayesianMLPRegressor, 100)
    model = BayesianMLPRegressor(warm_start=True, **SMALL | {"max_iter": 300}).fit(X[:50], y[:50])
    before = model.score(X, y)
    model.fit(X, 1000 * y - 7)
    assert model.score(X, 1000 * y - 7) > before - 0.05
    assert model._last.model.y_scaling.scale[0] > 500


def test_every_noise_model_and_prior_goes_on():
    X, y = problem(BayesianMLPRegressor)
    for settings in ({"noise": "heteroscedastic"}, {"noise": "homoscedastic"}, {"noise": 0.3}, {"prior": "prior_switch"}):
        model = BayesianMLPRegressor(warm_start=True, **SMALL, **settings).fit(X, y).fit(X, y).fit(X[:40], y[:40])
        assert np.isfinite(model.predict(X)).all()


@both
def test_a_pickled_model_goes_on_bit_equally_and_a_clone_forgets(estimator):
    X, y = problem(estimator)
    model = estimator(warm_start=True, **SMALL).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    fresh = clone(model).fit(X, y)
    np.testing.assert_array_equal(fresh.draws_, model.draws_)
    np.testing.assert_array_equal(model.fit(X, y).draws_, again.fit(X, y).draws_)


@both
def test_a_warm_fit_follows_a_stream(estimator):
    X, y = problem(estimator)
    model = estimator(warm_start=True, **SMALL)
    model.partial_fit(X, y, **({"classes": ["a", "b", "c"]} if estimator is BayesianMLPClassifier else {}))
    start = model._last.state.theta
    model.fit(X, y)
    assert start.shape == model._last.state.theta.shape
    assert model.n_iter_ == 40
    assert model.diagnostics().law == ""


CHANGES = [
    ({"hidden_layer_sizes": (5,)}, slice(None), "hidden_layer_sizes changed from \\(4,\\) to \\(5,\\)"),
    ({"activation": "tanh"}, slice(None), "activation changed"),
    ({"n_chains": 6}, slice(None), "n_chains=6 was 5"),
    ({}, slice(2), "2 features"),
    ({"checkpoint": "here"}, slice(None), "keeps no start"),
    ({"warm_start": "yes"}, slice(None), "warm_start='yes' must be True or False"),
]


@both
@pytest.mark.parametrize(("settings", "columns", "message"), CHANGES)
def test_what_cannot_go_on_is_an_error_that_leaves_the_model_whole(estimator, settings, columns, message):
    X, y = problem(estimator)
    model = estimator(warm_start=True, **SMALL).fit(X, y)
    prediction = model.predict(X)
    model.set_params(**settings)
    with pytest.raises(ValueError, match=message):
        model.fit(X[:, columns], y)
    np.testing.assert_array_equal(model.predict(X), prediction)
    assert model.set_params(warm_start=False, n_chains=5).fit(X[:, columns], y).n_iter_ == 40


@pytest.mark.parametrize(("name", "x", "y"), [("X", 100.0, 0.0), ("y", 0.0, 100.0)])
def test_rows_far_from_the_last_ones_are_warned_of(name, x, y):
    X = np.random.RandomState(0).randn(40, 2)
    model = BayesianMLPRegressor((4,), prior="normal", max_iter=20, n_draws=4, random_state=0, warm_start=True).fit(X, X[:, 0])
    with pytest.warns(ConvergenceWarning, match=rf"{name} is [0-9.]+ standard deviations away from .* use warm_start=False"):
        model.fit(X + x, X[:, 0] + y)


@pytest.mark.parametrize(("x", "y"), [(1e300, 1.0), (1.0, 1e-300)])
def test_units_too_far_from_the_last_ones_are_an_error_that_leaves_the_model_whole(x, y):
    X, target = problem(BayesianMLPRegressor)
    model = BayesianMLPRegressor(warm_start=True, **SMALL).fit(X, target)
    prediction = model.predict(X)
    with pytest.raises(ValueError, match=r"X or y has units so far .* overflow float32.* use warm_start=False"):
        model.fit(x * X, y * target)
    np.testing.assert_array_equal(model.predict(X), prediction)


def test_other_classes_targets_or_noise_are_errors():
    X, y = problem(BayesianMLPClassifier)
    with pytest.raises(ValueError, match="classes of y changed"):
        BayesianMLPClassifier(warm_start=True, **SMALL).fit(X, y).fit(X[y != "a"], y[y != "a"])
    X, y = problem(BayesianMLPRegressor)
    model = BayesianMLPRegressor(warm_start=True, noise="homoscedastic", **SMALL).fit(X, y)
    with pytest.raises(ValueError, match="number of targets in y changed"):
        model.fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match=r"noise \(the observation model\) changed"):
        model.set_params(noise=1.0).fit(X, y)
    assert isinstance(model._likelihood, HomoscedasticNoise)


def test_chains_that_diverged_are_not_asked_for_again():
    X, y = problem(BayesianMLPRegressor)
    model = BayesianMLPRegressor(warm_start=True, **SMALL).fit(X, y)
    last = model._last
    model._last = last.__class__(**{**vars(last), "state": type(last.state)(*(part[:3] for part in last.state)), "key": ""})
    assert model.fit(X, y).draws_.shape[1] == 3
    assert model.fit(X, y).draws_.shape[1] == 3
