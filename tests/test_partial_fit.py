"""Streams: the calls of partial_fit keep their books, say what they refuse, and follow scikit-learn's ways."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.batches import Batches
from sklearn_sgmcmc.estimators._walk import latter_steps, recent_steps
from sklearn_sgmcmc.samplers import SAMPLERS, SGLD

# --- the books -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize("n_draws", [1, 5, 50])
def test_held_draws_are_few_recent_and_evenly_spaced(n_draws, chunk):
    window, every = 37, -(-37 // n_draws)
    held, latter, gap = np.empty(0, int), np.empty(0, int), 1
    for now in range(0, 30 * chunk, chunk):
        total = now + chunk
        held = recent_steps(held, now, total, every, window, n_draws)
        latter, gap = latter_steps(latter, now, total, gap, n_draws)
        for steps in (held, latter):
            assert 1 <= len(steps) <= n_draws
            assert total - max(window, gap, every) < steps[-1] <= total
        assert (held[:-1] > total - window).all()
        assert (latter[:-1] > total / 2).all()
        assert (np.diff(held) == every).all()
        assert (np.diff(latter) == gap).all()
    assert len(latter) * 4 > n_draws  # the store is used


SMALL = {"hidden_layer_sizes": (4,), "random_state": 0, "n_chains": 5, "n_draws": 8, "warm_up": 20}
ESTIMATORS = [BayesianMLPClassifier, BayesianMLPRegressor]
both = pytest.mark.parametrize("estimator", ESTIMATORS)


def problem(estimator, n=60, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 3)
    y = X[:, 0] + 0.3 * rng.randn(n)
    return X, np.array(["a", "b", "c"])[np.digitize(y, [-0.5, 0.5])] if estimator is BayesianMLPClassifier else y


def begin(estimator, X, y, **settings):
    model = estimator(**SMALL | settings)
    given = {"classes": ["a", "b", "c"]} if estimator is BayesianMLPClassifier else {}
    return model.partial_fit(X, y, **given)


@both
@pytest.mark.parametrize("n_total", [None, 60])
@pytest.mark.parametrize("batch_size", ["auto", 7])
def test_a_pickled_stream_goes_on_bit_equally(estimator, n_total, batch_size):
    X, y = problem(estimator)
    straight = begin(estimator, X, y, batch_size=batch_size)
    parted = begin(estimator, X, y, batch_size=batch_size)
    for rows_ in np.arange(60).reshape(12, 5):
        straight.partial_fit(X[rows_], y[rows_], n_total=n_total)
        parted = pickle.loads(pickle.dumps(parted)).partial_fit(X[rows_], y[rows_], n_total=n_total)
    np.testing.assert_array_equal(straight.draws_, parted.draws_)
    np.testing.assert_array_equal(straight.predict(X), parted.predict(X))


@both
def test_the_pickle_is_small_and_holds_neither_data_nor_tensors(estimator):
    X, y = problem(estimator, 5000)
    model = begin(estimator, X, y, n_draws=20)
    for _ in range(10):
        model.partial_fit(X, y)
    data = pickle.dumps(model)
    assert len(data) < model.draws_.nbytes + 50_000
    assert b"torch" not in data


def test_memory_is_bounded_however_long_the_stream():
    X, y = problem(BayesianMLPRegressor, 20)
    model = begin(BayesianMLPRegressor, X, y)
    sizes = []
    for _ in range(250):
        model.partial_fit(X, y, n_total=20)
        sizes.append(len(model.draws_))
    assert max(sizes) <= 8
    assert len(model.potential_curve_) <= 200
    assert len(model._reference) == 32


@pytest.mark.parametrize(("batch_size", "steps"), [("auto", 1), (60, 1), (100, 1), (30, 2), (29, 3), (3, 20)])
def test_a_chunk_is_one_step_or_as_many_as_batch_size_makes_of_it(batch_size, steps):
    X, y = problem(BayesianMLPRegressor)
    model = begin(BayesianMLPRegressor, X, y, batch_size=batch_size)
    assert (model.n_iter_, model.n_steps_) == (1, steps)
    model.partial_fit(X, y)
    assert (model.n_iter_, model.n_steps_) == (2, 2 * steps)


def test_fit_and_partial_fit_count_on():
    X, y = problem(BayesianMLPRegressor)
    model = BayesianMLPRegressor(batch_size=20, max_iter=10, **SMALL).fit(X, y)
    epochs, steps = model.n_iter_, model.n_steps_
    model.partial_fit(X, y)
    assert (model.n_iter_, model.n_steps_) == (epochs + 1, steps + 3)


@both
def test_rows_of_weight_zero_are_absent_and_weights_are_counts(estimator):
    X, y = problem(estimator)
    given = {"classes": ["a", "b", "c"]} if estimator is BayesianMLPClassifier else {}
    plain = estimator(**SMALL).partial_fit(X, y, **given)
    absent = estimator(**SMALL).partial_fit(np.r_[X, X + 9], np.r_[y, y], sample_weight=np.repeat([1.0, 0.0], 60), **given)
    np.testing.assert_array_equal(plain.draws_, absent.draws_)
    counted = estimator(**SMALL | {"dtype": "float64", "warm_up": 0}).partial_fit(X, y, sample_weight=np.full(60, 2.0), **given)
    twice = estimator(**SMALL | {"dtype": "float64", "warm_up": 0}).partial_fit(np.r_[X, X], np.r_[y, y], **given)
    np.testing.assert_allclose(counted.draws_, twice.draws_, rtol=1e-5, atol=1e-6)
    assert counted._last.stream.n_data[0, 0] == pytest.approx(120)


@both
def test_sparse_and_dense_chunks_give_the_same_bits(estimator):
    X, y = problem(estimator)
    X = np.where(X > 0, X, 0.0)
    dense, sparse = (begin(estimator, part, y).partial_fit(part[:9], y[:9]) for part in (X, scipy.sparse.csr_array(X)))
    np.testing.assert_array_equal(dense.draws_, sparse.draws_)


def test_a_call_that_is_interrupted_raises_and_leaves_the_model_as_it_was(monkeypatch):
    X, y = problem(BayesianMLPRegressor)
    model = BayesianMLPRegressor(batch_size=2, learning_rate=0.005, sampler="sghmc", **SMALL).partial_fit(X, y)
    draws, left, original = model.draws_, iter(range(25)), Batches.__next__

    def interrupt(batches):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return original(batches)

    monkeypatch.setattr(Batches, "__next__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X, y)
    assert model.draws_ is draws
    assert model.n_steps_ == 30


@both
def test_clone_forgets_and_fit_begins_anew(estimator):
    X, y = problem(estimator)
    model = begin(estimator, X, y, max_iter=20)
    assert not hasattr(clone(model), "_last")
    fresh = estimator(**SMALL, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        np.testing.assert_array_equal(model.fit(X, y).draws_, fresh.fit(X, y).draws_)
    assert model.diagnostics().law == ""


@pytest.mark.parametrize("sampler", ["sghmc", "msgld"])
def test_a_stream_goes_on_from_the_last_states_of_a_fit(sampler):
    X, y = problem(BayesianMLPRegressor, 200)
    model = BayesianMLPRegressor(sampler=sampler, learning_rate=1e-12, batch_size=20, max_iter=2, **SMALL).fit(X, y)
    before, scales = model._last.state.theta, model._x_scaling
    model.partial_fit(5 * X[:50], y[:50])
    np.testing.assert_allclose(model.draws_[-1], before, atol=1e-4)
    assert model._x_scaling is scales
    assert 50 < model._last.stream.n_data[0, 0] <= 250 * (1 + 1e-6)


@both
@pytest.mark.parametrize("name", [name for name, kind in SAMPLERS.items() if "full_batch" not in kind.needs])
def test_every_minibatch_sampler_takes_chunks(estimator, name):
    X, y = problem(estimator)
    model = begin(estimator, X, y, sampler=name)
    for start in range(0, 60, 20):
        model.partial_fit(X[start : start + 20], y[start : start + 20])
    assert np.isfinite(model.draws_).all()
    assert len(model.predict(X)) == 60


@pytest.mark.parametrize("name", [name for name, kind in SAMPLERS.items() if "full_batch" in kind.needs])
def test_full_batch_samplers_hide_the_method(name):
    model = BayesianMLPRegressor(sampler=name)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as error:
        model.partial_fit  # noqa: B018
    assert "'sghmc'" in str(error.value.__cause__)
    assert not hasattr(BayesianMLPRegressor(sampler=SAMPLERS[name]()), "partial_fit")


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["homoscedastic", "heteroscedastic"])
def test_learned_noise_is_followed_without_a_given_rate(noise):
    rng = np.random.RandomState(0)
    model = BayesianMLPRegressor((10,), noise=noise, random_state=0)
    for _ in range(300):
        X = rng.randn(64, 2)
        model.partial_fit(X, X[:, 0] - X[:, 1] + 0.05 * rng.randn(64))
    assert model.score(X, X[:, 0] - X[:, 1]) > 0.98
    assert model.predict_noise(X).mean() < 0.5


# --- classes, errors, and scikit-learn's ways ------------------------------------------------------------------------------------


def test_a_class_may_be_missing_from_the_first_chunks():
    X, y = problem(BayesianMLPClassifier)
    model = begin(BayesianMLPClassifier, X[y != "c"], y[y != "c"])
    assert model.predict_proba(X).shape == (60, 3)
    for _ in range(60):
        model.partial_fit(X[y == "c"], y[y == "c"])
    assert set(model.predict(X[y == "c"])) == {"c"}  # elsewhere nothing was seen since


CLASSES = [
    ({}, {"classes": None}, "first call of partial_fit must name all classes"),
    ({}, {"classes": ["a", "b"]}, r"y has classes \['c'\] that are not among \['a', 'b'\]"),
    ({"class_weight": "balanced"}, {"classes": ["a", "b", "c"]}, "class_weight='balanced'"),
    ({}, {"classes": {"a", "b", "c"}}, "classes=.* must be a list of all labels"),
    ({}, {"classes": "abc"}, "classes='abc' must be a list of all labels"),
    ({}, {"classes": []}, r"classes=\[\] must be a list of all labels"),
    ({}, {"classes": [0.0, np.nan]}, "none of them NaN"),
    ({}, {"classes": ["a", "b", "c", None]}, "classes has entries of the types NoneType, str"),
]


@pytest.mark.parametrize(("settings", "given", "message"), CLASSES)
def test_classes_are_named_in_the_first_call(settings, given, message):
    X, y = problem(BayesianMLPClassifier)
    with pytest.raises(ValueError, match=message):
        BayesianMLPClassifier(**SMALL, **settings).partial_fit(X, y, **given)


def test_class_weights_multiply_the_rows():
    X, y = problem(BayesianMLPClassifier)
    weighted = begin(BayesianMLPClassifier, X, y, class_weight={"a": 3.0})
    assert weighted._last.stream.n_data[0, 0] == 60 + 2 * (y == "a").sum()


LATER = [
    ({}, lambda X, y: (X, np.where(y == "a", "d", y)), {}, r"y has classes \['d'\]"),
    ({}, lambda X, y: (X, y), {"classes": ["a", "b"]}, "in the first call"),
    ({}, lambda X, y: (X[:, :2], y), {}, "2 features"),
    ({}, lambda X, y: (X * np.nan, y), {}, "NaN"),
    ({}, lambda X, y: (X, y), {"n_total": 59}, "n_total=59 is less than the weight of this chunk"),
    ({}, lambda X, y: (X, y), {"n_total": -1.0}, "n_total=-1.0 must be"),
    ({}, lambda X, y: (X, y), {"sample_weight": np.zeros(60)}, "zero for every row"),
    ({"hidden_layer_sizes": (5,)}, lambda X, y: (X, y), {}, "hidden_layer_sizes changed"),
    ({"activation": "tanh"}, lambda X, y: (X, y), {}, "activation changed"),
    ({"n_chains": 3}, lambda X, y: (X, y), {}, "n_chains=3 was 5"),
    ({"schedule": "cyclical"}, lambda X, y: (X, y), {}, "schedule='cyclical'"),
    ({"prior": "prior_switch"}, lambda X, y: (X, y), {}, "prior='prior_switch'"),
    ({"checkpoint": "run.npz"}, lambda X, y: (X, y), {}, "checkpoint='run.npz'"),
]


@pytest.mark.parametrize(("settings", "change", "given", "message"), LATER)
def test_a_failed_call_says_why_and_leaves_the_model_whole(settings, change, given, message):
    X, y = problem(BayesianMLPClassifier)
    model = begin(BayesianMLPClassifier, X, y)
    proba = model.predict_proba(X)
    model.set_params(**settings)
    before = model.__dict__.copy()
    with pytest.raises(ValueError, match=message):
        model.partial_fit(*change(X, y), **given)
    assert model.__dict__.keys() == before.keys()
    assert all(model.__dict__[name] is before[name] for name in before)
    np.testing.assert_array_equal(model.predict_proba(X), proba)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_stream_whose_chains_all_diverge_ends_with_the_last_sound_model():
    X, y = problem(BayesianMLPRegressor)
    model = begin(BayesianMLPRegressor, X, y).set_params(learning_rate=100.0)

    def go_on():
        for _ in range(100):
            assert np.isfinite(model.predict(X)).all()
            model.partial_fit(X, y)

    with pytest.raises(ValueError, match=r"diverged .* try learning_rate<=10\. The model is left as it was"):
        go_on()
    assert np.isfinite(model.predict(X)).all()


def test_a_changed_number_of_targets_is_an_error():
    X, y = problem(BayesianMLPRegressor)
    model = begin(BayesianMLPRegressor, X, y)
    with pytest.raises(ValueError, match="keep the shape"):
        model.partial_fit(X, np.column_stack([y, y]))


def test_a_diverged_chain_is_dropped_with_its_draws():
    X, y = problem(BayesianMLPRegressor)
    model = begin(BayesianMLPRegressor, X, y)
    model._last.state.theta[2] = np.inf
    others = np.delete(model.draws_, 2, axis=1)
    with pytest.warns(ConvergenceWarning, match=r"diverged \(1 of 5 chains\)"):
        model.partial_fit(X, y)
    np.testing.assert_array_equal(model.draws_[: len(others)], others)
    assert np.isfinite(model.predict(X)).all()
    assert model.partial_fit(X, y).draws_.shape[1] == 4


def test_a_chain_that_stays_hot_is_dropped():
    X, y = problem(BayesianMLPRegressor)
    model = begin(BayesianMLPRegressor, X, y, learning_rate=1e-9, sampler="sgld", noise=1.0, prior="normal")
    model._last.state.theta[1] = 1e4
    model._last = replace(model._last, stream=replace(model._last.stream, strays=np.full(5, 10**11)))
    with pytest.warns(ConvergenceWarning, match=r"diverged \(1 of 5 chains\)"):
        model.partial_fit(X, y)


def test_few_rows_to_take_scales_from_are_warned_of():
    X, y = problem(BayesianMLPRegressor)
    with pytest.warns(ConvergenceWarning, match="first chunk has 1 rows"):
        model = begin(BayesianMLPRegressor, X[:1], y[:1])
    for row in range(1, 30):
        model.partial_fit(X[row : row + 1], y[row : row + 1])
    assert np.isfinite(model.predict(X)).all()


def test_a_scaled_stream_runs_beside_its_scaler():
    X, y = problem(BayesianMLPClassifier, 200)
    pipe = make_pipeline(StandardScaler(), BayesianMLPClassifier(standardize=False, **SMALL))
    scaler, model = pipe[0], pipe[1]
    for start in range(0, 200, 20):
        chunk, labels = X[start : start + 20], y[start : start + 20]
        model.partial_fit(scaler.partial_fit(chunk).transform(chunk), labels, classes=["a", "b", "c"])
    assert pipe.score(X, y) > 0.5


def test_a_search_clones_a_streamed_model_and_routing_is_there():
    X, y = problem(BayesianMLPRegressor)
    model = begin(BayesianMLPRegressor, X, y, max_iter=10, sampler="sgld")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(model, {"temperature": [0.5, 1.0]}, cv=2).fit(X, y)
    assert search.best_estimator_.diagnostics().law == ""
    with config_context(enable_metadata_routing=True):
        model.set_partial_fit_request(sample_weight=True, n_total=True)
        BayesianMLPClassifier().set_partial_fit_request(classes=True)


def test_summary_diagnostics_and_displays_work_on_a_stream():
    X, y = problem(BayesianMLPRegressor)
    model = begin(BayesianMLPRegressor, X, y).partial_fit(X, y, n_total=100)
    assert "N = 100 rows by weight, of which 60 were seen so far" in model.summary()
    assert model.partial_fit(X, y).diagnostics().law.startswith("tracking")
    assert model.to_arviz()["posterior"].sizes["chain"] == 5
    assert model.potential_.shape == (0, 5)


@pytest.mark.parametrize("gain", [0.0, 1e-300, math.nan])
def test_a_drift_that_has_faded_is_a_long_memory(gain, monkeypatch):
    monkeypatch.setattr(SGLD, "drift_gain", lambda self, state: torch.full_like(state.theta, gain))
    X = np.random.RandomState(0).randn(20, 2)
    model = BayesianMLPRegressor((2,), sampler="sgld", learning_rate=0.01, warm_up=0, random_state=0)
    for _ in range(2):
        model.partial_fit(X, X[:, 0])
    assert np.isfinite(model.predict(X)).all()
