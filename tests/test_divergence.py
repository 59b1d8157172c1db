"""Chains that diverge are named, dropped and never seen in a prediction."""

import itertools
import re

import joblib
import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor, engine, noise

RNG = np.random.RandomState(0)
X = RNG.randn(40, 3)
Y = X[:, 0] + 0.1 * RNG.randn(40)
LABEL = (Y > 0).astype(int)
FAST = {"hidden_layer_sizes": (4,), "sampler": "sgld", "warm_up": 0, "max_iter": 60, "n_draws": 4, "random_state": 0}
both = pytest.mark.parametrize(("estimator", "y"), [(BayesianMLPClassifier, LABEL), (BayesianMLPRegressor, Y)])


@pytest.fixture
def thrown(monkeypatch):
    """Return a function that has some chains of a block thrown away at a step: their noise becomes NaN or huge."""

    def throw(chains, at_step=30, factor=torch.nan):
        original, count = noise.BlockNoise.__call__, itertools.count()

        def poisoned(self, like):
            out = original(self, like)
            if next(count) == at_step:  # call 0 makes the start
                out[list(chains)] *= factor
            return out

        monkeypatch.setattr(noise.BlockNoise, "__call__", poisoned)

    return throw


@both
@pytest.mark.parametrize("factor", [torch.nan, 1e30])
def test_a_dropped_chain_is_named_with_its_step_wherever_the_run_is_described(estimator, y, factor, thrown):
    thrown([1, 3], factor=factor)
    with pytest.warns(ConvergenceWarning, match=r"learning_rate=.* diverged by step 30 \(2 of 4 chains: 1, 3\); try .* dropped"):
        model = estimator(**FAST).fit(X, y)
    assert model.diagnostics().dropped_chains == ((1, 30), (3, 30))
    assert re.search(r"^chains dropped +2: 1 \(by step 30\), 3 \(by step 30\)$", model.summary(), re.MULTILINE)
    assert model.draws_.shape[1] == model.potential_.shape[1] == model.potential_curve_.shape[1] == 2
    assert np.isfinite(model.draws_).all()
    predict = model.predict_proba if estimator is BayesianMLPClassifier else model.predict
    assert np.isfinite(predict(X, return_std=True)).all()


def test_the_chains_that_live_are_those_of_a_run_without_accident(thrown):
    whole = BayesianMLPClassifier(**FAST).fit(X, LABEL)
    thrown([2])
    with pytest.warns(ConvergenceWarning, match="dropped"):
        rest = BayesianMLPClassifier(**FAST).fit(X, LABEL)
    np.testing.assert_array_equal(rest.draws_, whole.draws_[:, [0, 1, 3]])


def test_chains_are_numbered_across_workers(thrown):
    thrown([0], at_step=30)
    with joblib.parallel_config(backend="threading"), pytest.warns(ConvergenceWarning, match=r"1 of 8 chains: [04]\)"):
        model = BayesianMLPClassifier(n_chains=8, n_jobs=2, **FAST).fit(X, LABEL)
    assert next(chain for chain, _ in model.diagnostics().dropped_chains) in (0, 4)
    assert model.draws_.shape[1] == 7


def test_all_chains_lost_is_an_error_that_names_step_and_parameter(thrown):
    thrown(range(4))
    with pytest.raises(ValueError, match=r"^learning_rate=.* diverged by step 30 \(4 of 4 chains\); try learning_rate<="):
        BayesianMLPClassifier(**FAST).fit(X, LABEL)


def test_a_run_that_is_lost_ends_early(thrown, monkeypatch):
    steps = []
    monkeypatch.setattr(engine._Watch, "after", lambda watch, step, theta: steps.append(step))
    thrown(range(4), at_step=3)
    with pytest.raises(ValueError, match="by step 50"):
        BayesianMLPClassifier(**(FAST | {"max_iter": 5000})).fit(X, LABEL)
    assert len(steps) == 50


def test_a_chain_with_draws_that_are_not_finite_is_dropped_even_if_it_recovered(monkeypatch):
    def broken(store, theta, add=engine.DrawStore.add):
        theta = theta.clone()
        theta[1, 0] = torch.nan
        add(store, theta)

    monkeypatch.setattr(engine.DrawStore, "add", broken)
    with pytest.warns(ConvergenceWarning, match=r"1 of 4 chains: 1\)"):
        model = BayesianMLPClassifier(**FAST).fit(X, LABEL)
    assert model.diagnostics().dropped_chains == ((1, -1),)
    assert "1 (in the end)" in model.summary()


def test_a_fit_without_accident_drops_nothing():
    model = BayesianMLPClassifier(**FAST).fit(X, LABEL)
    assert model.diagnostics().dropped_chains == ()
    assert "dropped" not in model.summary()


@pytest.mark.parametrize("n_steps", [40, 1000, 5050])
def test_divergence_is_looked_for_a_hundred_times_in_a_run_and_not_at_every_step(n_steps, monkeypatch):
    """On a GPU every look waits for the device; between looks nothing is asked of it."""
    looks, notes = [], []

    def look(watch, step, *arguments, original=engine._Watch.look):
        looks.append(step)
        return original(watch, step, *arguments)

    def note(watch, step, alive, original=engine._Watch.note):
        notes.append(step)
        original(watch, step, alive)

    monkeypatch.setattr(engine._Watch, "look", look)
    monkeypatch.setattr(engine._Watch, "note", note)
    BayesianMLPClassifier(**(FAST | {"max_iter": n_steps, "hidden_layer_sizes": ()})).fit(X, LABEL)
    assert looks == notes
    assert looks[0] == 0
    assert looks[-1] == n_steps
    assert len(looks) <= 2 + min(engine.LOOKS + 1, n_steps // engine.SHORTEST_WAIT)


def test_chains_that_die_in_different_stages_do_not_depend_on_the_number_of_workers():
    rng = np.random.RandomState(0)
    X = rng.randn(30, 3)
    model = BayesianMLPRegressor(
        (4,),
        sampler="sgld",
        learning_rate=4.0,
        noise="heteroscedastic",
        n_chains=8,
        max_iter=60,
        n_draws=3,
        random_state=0,
        n_jobs=2,
    )
    with pytest.raises(ValueError, match=r"learning_rate=4.0 diverged"):
        model.fit(X, X[:, 0])


def test_mala_that_accepts_nothing_is_told_to_decrease_the_learning_rate():
    rng = np.random.RandomState(0)
    X = rng.randn(30, 3)
    model = BayesianMLPClassifier((4,), sampler="mala", learning_rate=1e4, max_iter=60, n_draws=20, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"so large that a chain accepts no proposal.* Decrease it"):
        model.fit(X, X[:, 0] > 0)
