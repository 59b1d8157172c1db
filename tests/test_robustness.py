"""What users of other libraries stumble over and no other test here is about: docs/robustness.md lists it all."""

import gc
import itertools
import pickle
import re
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from torch.utils._python_dispatch import TorchDispatchMode

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor, noise
from sklearn_sgmcmc.samplers import SAMPLERS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, LABEL = load_iris(return_X_y=True)
FAST = {"hidden_layer_sizes": (4,), "warm_up": 0, "max_iter": 20, "n_draws": 3, "random_state": 0}
both = pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
PAGE = Path(__file__).parent.parent / "docs" / "robustness.md"


# --- samplers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 30], ids=["start", "step"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_sampler_repairs_a_chain_that_is_not_a_number(sampler, at, monkeypatch):
    """A step that hides a NaN would let its step size run away unseen. A Metropolis test may reject a proposal that is none."""
    original, count = noise.BlockNoise.__call__, itertools.count()

    def poisoned(self, like):
        out = original(self, like)
        if next(count) == at:  # call 0 makes the start
            out[1] = torch.nan
        return out

    monkeypatch.setattr(noise.BlockNoise, "__call__", poisoned)
    model = BayesianMLPClassifier(**(FAST | {"sampler": sampler, "max_iter": 40})).fit(X, LABEL)
    met = next(count) > at and (sampler != "mala" or at == 0)
    assert [chain for chain, _ in model.diagnostics().dropped_chains] == ([1] if met else [])
    assert np.isfinite(model.learning_rate_).all()
    assert np.isfinite(model.predict_proba(X)).all()


# --- the contract ------------------------------------------------------------------------------------------------------------


@both
def test_the_constructor_stores_its_parameters_and_nothing_else(estimator):
    values = {name: object() for name in estimator().get_params()}
    model = estimator(**values)
    assert vars(model) == values
    assert all(model.get_params(deep=False)[name] is value for name, value in values.items())


@both
def test_clones_with_a_generator_do_not_share_it(estimator):
    random_state = np.random.RandomState(7)
    first, second = (clone(estimator(**(FAST | {"random_state": random_state}))) for _ in range(2))
    np.testing.assert_array_equal(first.fit(X, LABEL).draws_, second.fit(X, LABEL).draws_)
    assert random_state.randint(2**31) == np.random.RandomState(7).randint(2**31)


def test_a_regressor_has_no_probabilities():
    assert not hasattr(BayesianMLPRegressor(), "predict_proba")


# --- memory ------------------------------------------------------------------------------------------------------------------


def peak_of_fit(n_rows, n_columns=8000):
    columns = np.random.RandomState(0).randint(n_columns, size=8 * n_rows)
    X = scipy.sparse.csr_array((np.ones(len(columns)), (np.arange(len(columns)) // 8, columns)), shape=(n_rows, n_columns))
    y = columns[::8] / n_columns
    model = BayesianMLPRegressor(batch_size=32, **(FAST | {"hidden_layer_sizes": (2,), "sampler": "sgld", "learning_rate": 1e-3}))
    model.set_params(n_chains=1, max_iter=1)
    tracemalloc.start()
    try:
        model.fit(X, y)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_a_sparse_fit_does_not_grow_with_rows_times_columns():
    growth = peak_of_fit(1600) - peak_of_fit(1100)
    assert growth < 500 * 8000 * 4 / 4  # a fourth of the further rows made dense in float32


@pytest.mark.parametrize(("batch_size", "epochs"), [("auto", (1000, 2000)), (16, (107, 214))])
def test_a_longer_run_keeps_no_more(batch_size, epochs):
    """Draws are thinned while they are made, and the curve has some hundred points."""
    settings = FAST | {"sampler": "sgld", "hidden_layer_sizes": (), "batch_size": batch_size}
    short, long = (BayesianMLPClassifier(**settings).set_params(max_iter=n).fit(X, LABEL) for n in epochs)
    assert short.draws_.shape == long.draws_.shape
    assert len(long.potential_curve_) <= len(short.potential_curve_) + 1
    assert len(pickle.dumps(long)) <= len(pickle.dumps(short)) + 500


def test_a_fit_leaves_no_tensors_behind():
    def alive():
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    model = BayesianMLPRegressor(batch_size=16, **FAST).fit(X, LABEL)  # fills the caches of constants
    model.predict(X, return_std=True)
    before = alive()
    for seed in range(3):
        model.set_params(random_state=seed).fit(X, LABEL).predict(X, return_std=True)
    assert alive() <= before


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that anything makes."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                own = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.size = max(self.size, own)
        return out


@pytest.mark.parametrize(
    ("estimator", "method", "arguments"),
    [
        (BayesianMLPClassifier, "predict_proba", {"return_std": True}),
        (BayesianMLPClassifier, "predict_log_proba", {}),
        (BayesianMLPClassifier, "predict_uncertainty", {}),
        (BayesianMLPRegressor, "predict", {"return_std": True}),
        (BayesianMLPRegressor, "predict_interval", {}),
    ],
)
def test_no_prediction_builds_draws_times_rows(estimator, method, arguments):
    """Draws, rows and classes are 12 x 30,000 x 3 here; what is held at once is bounded whatever they are."""
    model = estimator(**FAST).fit(X, LABEL)
    rows = np.tile(X, (200, 1))
    with Largest() as of_many:
        getattr(model, method)(rows, **arguments)
    with Largest() as of_few:
        getattr(model, method)(rows[:3000], **arguments)
    assert of_many.size == of_few.size
    assert of_few.size < 2**20


# --- time --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_jobs_take_no_longer_than_one():
    """At most half as long again, workers started beforehand: threads that fight for cores make it many times as long."""
    model = BayesianMLPClassifier(**(FAST | {"hidden_layer_sizes": (30,), "max_iter": 1500}))

    def seconds(n_jobs):
        search = GridSearchCV(model, {"prior_scale": [0.5, 1.0]}, cv=2, n_jobs=n_jobs)
        start = time.perf_counter()
        search.fit(X, LABEL)
        return time.perf_counter() - start

    seconds(2)
    assert seconds(2) < 1.5 * seconds(1)


# --- the page ----------------------------------------------------------------------------------------------------------------

NAMED = sorted(set(re.findall(r"`(test_\w+)\.py::(test_\w+)`", PAGE.read_text())))


@pytest.mark.parametrize(("module", "name"), NAMED)
def test_every_test_that_the_page_names_is_there(module, name):
    assert re.search(rf"^def {name}\(", (Path(__file__).parent / f"{module}.py").read_text(), re.MULTILINE)
