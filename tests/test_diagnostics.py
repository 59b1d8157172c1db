"""Diagnostics: they equal an independent computation, warn where they should and nowhere else, and cost little."""

import math
import pickle
import re
import sys
import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse
from arviz_stats.base import array_stats
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.diagnostics import Measured, evenly, one_law, potential_draws
from sklearn_sgmcmc.estimators._review import noise_message
from sklearn_sgmcmc.samplers import SAMPLERS
from sklearn_sgmcmc.schedules import Cyclical, StepDecay

FAST = {"hidden_layer_sizes": (4,), "warm_up": 0, "max_iter": 60, "n_draws": 20, "random_state": 0}
LONGER = FAST | {"max_iter": 200}  # U is then evaluated at every draw
RNG = np.random.RandomState(0)
X = RNG.randn(80, 3)
LABEL = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.3 * RNG.randn(80), [-0.5, 0.5])]
Y = X[:, 0] - X[:, 1] ** 2 + 0.1 * RNG.randn(80)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
both = pytest.mark.parametrize(("estimator", "y"), [(BayesianMLPClassifier, LABEL), (BayesianMLPRegressor, Y)])


@cache
def fitted(estimator, **settings):
    """Return a model for reading alone."""
    return estimator(**FAST | settings).fit(X, LABEL if estimator is BayesianMLPClassifier else Y)


def full_potential(model, X, y, weight=None):
    """Return U at all stored draws, (S, C), written down anew in float64 for a classifier with one tanh layer and prior N(0, 1)."""
    x = (X - np.average(X, axis=0, weights=weight)) / np.sqrt(
        np.average((X - np.average(X, axis=0, weights=weight)) ** 2, axis=0, weights=weight)
    )
    draws = model.draws_.astype(np.float64)
    d, h, k = X.shape[1], 4, len(model.classes_)
    first = draws[..., : (d + 1) * h].reshape(*draws.shape[:2], d + 1, h)
    last = draws[..., (d + 1) * h :].reshape(*draws.shape[:2], k, h + 1)
    hidden = np.tanh(np.einsum("nd,scdh->scnh", x, first[:, :, :-1]) + first[:, :, None, -1])
    logits = np.einsum("scnh,sckh->scnk", hidden, last[..., :-1]) + last[:, :, None, :, -1]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = log_p[:, :, np.arange(len(y)), np.searchsorted(model.classes_, y)]
    data = -(chosen * (1.0 if weight is None else weight)).sum(-1)
    return data + 0.5 * (draws**2).sum(-1) + 0.5 * draws.shape[2] * math.log(2 * math.pi)


# --- U and R-hat -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [None, 1.0 + np.arange(80) % 3])
def test_potential_is_u_over_all_rows_at_the_kept_draws(weight):
    model = BayesianMLPClassifier(activation="tanh", **LONGER).fit(X, LABEL, sample_weight=weight)
    assert model.potential_.shape == (20, 4)
    np.testing.assert_allclose(model.potential_, full_potential(model, X, LABEL, weight), rtol=1e-5)


def test_potential_counts_all_rows_in_minibatches_too():
    model = BayesianMLPClassifier(activation="tanh", batch_size=16, **FAST).fit(X, LABEL)
    chosen = model._measured.potential_draws
    np.testing.assert_allclose(model.potential_, full_potential(model, X, LABEL)[chosen], rtol=1e-5)


def test_potential_is_thinned_to_a_tenth_of_the_work_and_ten_draws():
    assert len(potential_draws(50, 100, 100 * 1500)) == 50  # 150 draws would be affordable
    assert len(potential_draws(50, 1000, 64 * 5000)) == 32
    np.testing.assert_array_equal(potential_draws(50, 1000, 0), [0, 5, 11, 16, 22, 27, 33, 38, 44, 49])
    assert len(potential_draws(7, 1000, 0)) == 7


@both
def test_r_hat_and_ess_are_those_of_arviz_stats(estimator, y):
    model = estimator(**LONGER).fit(X, y)
    found = model.diagnostics()
    # the 32 reference rows are spread over the distinct rows in sorted order
    order = np.lexsort(X.T[::-1])
    rows = X[order][np.linspace(0, 79, 32).round().astype(int)]
    values = np.asarray(model.sample_posterior(rows)).reshape(20, 4, -1)
    if estimator is BayesianMLPClassifier:
        values = values.reshape(20, 4, 32, 3)[..., :-1].reshape(20, 4, -1)
    by_chain = values.transpose(2, 1, 0)
    np.testing.assert_allclose(found.r_hat[-by_chain.shape[0] :], array_stats.rhat(by_chain), rtol=1e-2)  # float32 ranks
    np.testing.assert_allclose(found.ess_bulk[-by_chain.shape[0] :], array_stats.ess(by_chain, method="bulk"), rtol=1e-2)
    assert found.r_hat[0] == array_stats.rhat(model.potential_.T)
    assert found.ess_tail[0] == array_stats.ess(model.potential_.T, method="tail", prob=(0.05, 0.95))


def test_the_learned_noise_is_compared():
    model = BayesianMLPRegressor(noise="homoscedastic", **FAST).fit(X, Y)
    s = model.draws_[..., -1]
    found = model.diagnostics()
    np.testing.assert_allclose(found.r_hat[found.names.index("log_noise_sd")], array_stats.rhat(s.T), rtol=1e-6)


def test_names_belong_to_values_of_several_outputs():
    model = BayesianMLPRegressor(noise="heteroscedastic", **FAST).fit(X, np.c_[Y, 10 * Y])
    found = model.diagnostics()
    assert len(found.names) == len(found.r_hat) == len(found.ess_bulk) == len(found.ess_tail) == 1 + 2 * 2 * 32
    assert found.names[1] == "log_noise_sd of output 0, reference row 0"
    assert found.names[-1] == "mean of output 1, reference row 31"


@pytest.mark.parametrize("n_outputs", [1, 30])
def test_fit_looks_at_few_quantities(n_outputs):
    model = BayesianMLPRegressor(**FAST).fit(X, np.tile(Y[:, None], n_outputs))
    shared, of_rows = model._compared(23)
    assert 20 <= shared.values.shape[2] + of_rows.values.shape[2] <= 24


def test_one_class_leaves_the_potential_alone_to_compare():
    found = BayesianMLPClassifier(**FAST).fit(X, np.zeros(80)).diagnostics()
    assert found.names == ["potential"]


def test_a_single_chain_has_effective_sizes_and_no_r_hat():
    found = BayesianMLPRegressor(n_chains=1, **FAST).fit(X, Y).diagnostics()
    assert np.isnan(found.r_hat).all()
    assert (found.ess_bulk > 0).all()


def test_three_draws_have_neither():
    found = BayesianMLPRegressor(**FAST | {"n_draws": 3}).fit(X, Y).diagnostics()
    assert np.isnan(found.r_hat).all()
    assert np.isnan(found.ess_tail).all()


# --- phases ------------------------------------------------------------------------------------------------------------------


def test_draws_of_all_cycles_are_compared():
    found = BayesianMLPRegressor(schedule=Cyclical(n_cycles=4), **LONGER).fit(X, Y).diagnostics()
    assert (found.n_draws, found.note) == (20, "")


def test_draws_are_compared_within_one_step_of_a_step_schedule():
    settings = FAST | {"max_iter": 400, "n_draws": 100}
    model = BayesianMLPRegressor(schedule=StepDecay(0.5, every=100), **settings).fit(X, Y)
    found = model.diagnostics()
    assert found.n_draws == 66  # two thirds of the sum of the steps
    assert "draws 0 to 65 alone" in found.note
    assert found.r_hat[0] == array_stats.rhat(model.potential_[model._measured.potential_draws < 66].T)


@pytest.mark.parametrize(("schedule", "temperature"), [("polynomial", None), ("step", None), ("constant", 0.0)])
def test_draws_of_different_laws_are_not_compared(schedule, temperature):
    found = BayesianMLPRegressor(schedule=schedule, temperature=temperature, **FAST).fit(X, Y).diagnostics()
    assert found.n_draws == 0
    assert found.note.startswith("not compared")
    assert np.isnan(found.r_hat).all()


def test_an_annealed_temperature_is_not_compared():
    settings = FAST | {"batch_size": 16}
    found = BayesianMLPClassifier(sampler="santa", schedule="annealed", **settings).fit(X, LABEL).diagnostics()
    assert found.note.startswith("not compared")


def test_one_law_takes_the_longest_phase():
    step_size = np.repeat([1.0, 0.5, 0.25], [21, 30, 9])
    assert one_law(step_size, np.ones(60))[0] == slice(21, 51)


# --- gradient noise ----------------------------------------------------------------------------------------------------------


def test_ratio_is_zero_at_full_batch_and_positive_in_minibatches():
    full = fitted(BayesianMLPClassifier).diagnostics()
    part = fitted(BayesianMLPClassifier, batch_size=16).diagnostics()
    assert full.gradient_noise_ratio == (0.0, 0.0)
    assert 0 < part.gradient_noise_ratio[0] < part.gradient_noise_ratio[1]


@pytest.mark.parametrize("sampler", ["sgnht", "santa", "adam"])
def test_no_ratio_where_noise_is_absorbed_or_none_is_injected(sampler):
    model = BayesianMLPClassifier(sampler=sampler, batch_size=16, **FAST).fit(X, LABEL)
    assert model.diagnostics().gradient_noise_ratio is None


# --- the last state ----------------------------------------------------------------------------------------------------------


def test_acceptance_rate_of_mala():
    settings = FAST | {"max_iter": 200, "n_draws": 200, "burn_in": 0.0}
    model = BayesianMLPRegressor(sampler="mala", learning_rate=0.005, **settings).fit(X, Y)
    moved = (np.diff(model.draws_, axis=0) != 0).any(axis=2).sum(axis=0)
    found = 200 * model.diagnostics().acceptance_rate
    assert ((found == moved) | (found == moved + 1)).all()  # the first step is not among the differences
    assert (found < 200).any()


@pytest.mark.parametrize(("sampler", "tolerance"), [("sghmc", 0.0), ("baoab", 0.0), ("sgnht", 0.02), ("msgnht", 0.02)])
def test_kinetic_temperature_is_one_in_equilibrium(sampler, tolerance):
    model = BayesianMLPClassifier((20,), sampler=sampler, n_chains=40, max_iter=400, n_draws=2, random_state=0).fit(X, LABEL)
    found = model.diagnostics().kinetic_temperature
    error = np.sqrt(2 / model.draws_[0].size)
    assert abs(found.mean() - 1) < 5 * error + tolerance + 0.02  # p = 6e-7; steps of finite length shift it by a little


def test_friction_is_reported():
    model = BayesianMLPClassifier(sampler="sgnht", **FAST).fit(X, LABEL)
    assert model.diagnostics().friction.shape == (4,)


# --- warnings ----------------------------------------------------------------------------------------------------------------


def mixing_warnings(model, X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning) and "not mixed" in str(w.message)]


def test_a_short_run_of_a_network_warns_and_says_what_to_do():
    model = BayesianMLPRegressor(noise="homoscedastic", max_iter=100, random_state=0)
    (text,) = mixing_warnings(model, X, Y)
    assert "noise level" in text
    assert "Increase max_iter, from 100 to" in text


@pytest.mark.parametrize("settings", [{"n_chains": 1}, {"n_draws": 19}, {"sampler": "adam"}, {"schedule": "polynomial"}])
def test_no_warning_where_r_hat_would_be_noise(settings):
    assert not mixing_warnings(BayesianMLPRegressor(max_iter=100, random_state=0, **settings), X, Y)


def long_run(name):
    """Return a model whose chains mix in the steps that it takes, and its data."""
    if name == "regression":
        return BayesianMLPRegressor((), max_iter=15_000), load_diabetes(return_X_y=True)
    if name == "iris":
        return BayesianMLPClassifier((10,), learning_rate=0.1, max_iter=20_000), load_iris(return_X_y=True)
    return BayesianMLPClassifier((), learning_rate=0.2, max_iter=20_000), load_breast_cancer(return_X_y=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", ["regression", "iris", "breast cancer"])
def test_a_long_run_does_not_warn(name, seed):
    model, data = long_run(name)
    assert not mixing_warnings(model.set_params(random_state=seed), *data)


def test_large_steps_in_minibatches_warn_of_their_noise():
    model = BayesianMLPClassifier(sampler="sgld", learning_rate=1.0, batch_size=4, **FAST)
    with pytest.warns(ConvergenceWarning, match=r"noise of the minibatches widens the posterior.*Use learning_rate<=0"):
        model.fit(X, LABEL)


def test_a_ratio_just_above_its_limit_reads_so_and_the_rate_to_use_is_a_smaller_one():
    measured = Measured(slice(0, 50), "", np.arange(50), (0.40003, 5.0))
    text = noise_message(measured, 0.2, independent=False)
    assert "ratio is 0.40003 (median over parameters, limit 0.4)" in text
    assert "Use learning_rate<=0.19 " in text


def test_a_linear_regression_does_not_warn():
    assert not mixing_warnings(BayesianMLPRegressor((), noise="homoscedastic", random_state=0), X, Y)


def test_a_warning_turned_error_leaves_the_old_model_whole():
    model = BayesianMLPRegressor((), max_iter=100, random_state=0).fit(X, Y)
    before = model.draws_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            model.set_params(hidden_layer_sizes=(50,)).fit(X, Y)
    assert model.draws_ is before


# --- what comes out ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_has_a_summary(sampler):
    text = BayesianMLPRegressor(sampler=sampler, **FAST).fit(X, Y).summary()
    assert type(SAMPLERS[sampler]()).__name__ in text
    assert "60 steps" in text
    assert re.search(r"^sampler .* law: [a-z ]+ \((samples|keeps) .+\)$", text, re.MULTILINE)


def test_summary_repeats_the_warnings_of_fit():
    model = BayesianMLPRegressor(max_iter=100, random_state=0).fit(X, Y)
    assert "warning: The chains have not mixed" in model.summary()


@both
def test_diagnostics_are_deterministic(estimator, y):
    one, two = (estimator(batch_size=16, **FAST).fit(X, y) for _ in range(2))
    assert one.summary() == two.summary()
    np.testing.assert_array_equal(one.potential_, two.potential_)


@both
def test_diagnostics_do_not_depend_on_workers(estimator, y):
    one, two = (estimator(batch_size=16, n_chains=8, n_jobs=jobs, **FAST).fit(X, y) for jobs in (None, 2))
    np.testing.assert_array_equal(one.potential_, two.potential_)
    assert one.summary() == two.summary()


@both
@pytest.mark.parametrize("batch_size", ["auto", 16])
def test_sparse_rows_give_the_diagnostics_of_dense_ones(estimator, y, batch_size):
    thin = np.where(abs(X) < 0.7, 0.0, X)
    dense, sparse = (estimator(batch_size=batch_size, **FAST).fit(rows, y) for rows in (thin, scipy.sparse.csr_array(thin)))
    np.testing.assert_array_equal(dense.potential_, sparse.potential_)
    assert dense.summary() == sparse.summary()


def test_weight_k_equals_k_repeats():
    counts = np.random.RandomState(1).randint(0, 3, 80)
    weighted = BayesianMLPRegressor(**FAST).fit(X, Y, sample_weight=counts)
    repeated = BayesianMLPRegressor(**FAST).fit(np.repeat(X, counts, axis=0), np.repeat(Y, counts))
    np.testing.assert_array_equal(weighted.potential_, repeated.potential_)
    assert weighted.summary() == repeated.summary()


@both
def test_the_reference_rows_are_few_and_in_the_pickle(estimator, y):
    model = estimator(**FAST).fit(np.tile(X, (1, 50)), y)
    assert model._reference.shape == (32, 150)
    assert model._reference.dtype == np.float32
    arrays = model.draws_.nbytes + model.potential_curve_.nbytes + model.potential_.nbytes + model._reference.nbytes
    assert len(pickle.dumps(model)) < arrays + sum(part.nbytes for part in model._last.state) + 20_000


def test_a_loaded_model_has_the_same_summary():
    model = fitted(BayesianMLPClassifier)
    assert pickle.loads(pickle.dumps(model)).summary() == model.summary()


def test_diagnostics_inside_a_pipeline():
    pipe = make_pipeline(StandardScaler(), BayesianMLPClassifier(**FAST)).fit(X, LABEL)
    assert len(pipe[-1].diagnostics().names) == 1 + 2 * 32


def test_numbers_are_evenly_chosen():
    np.testing.assert_array_equal(evenly(10, 4), [0, 3, 6, 9])
    np.testing.assert_array_equal(evenly(3, 32), [0, 1, 2])


# --- ArviZ -------------------------------------------------------------------------------------------------------------------


@both
def test_data_tree_holds_what_is_compared(estimator, y):
    pytest.importorskip("arviz_base")
    model = fitted(estimator)
    tree = model.to_arviz()
    posterior = tree["posterior"]
    np.testing.assert_array_equal(tree["sample_stats"]["potential"], model.potential_.T)
    name, axis, labels = ("probability", "class", ["a", "b"]) if estimator is BayesianMLPClassifier else ("mean", "output", [0])
    assert posterior[name].dims == ("chain", "draw", "reference_row", axis)
    assert posterior[axis].values.tolist() == labels
    flat = posterior[name].values.reshape(4, 20, -1).transpose(2, 0, 1)
    np.testing.assert_allclose(model.diagnostics().r_hat[-flat.shape[0] :], array_stats.rhat(flat), rtol=1e-12)


def test_the_tree_names_the_draws_at_which_u_was_evaluated():
    pytest.importorskip("arviz_base")
    model = BayesianMLPClassifier(batch_size=16, **FAST | {"n_draws": 50, "max_iter": 25}).fit(X, LABEL)
    draws = model.to_arviz()["sample_stats"]["draw"].values
    np.testing.assert_array_equal(draws, model._measured.potential_draws)
    assert len(draws) < 50


def test_without_arviz_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(ImportError, match=r"sklearn-sgmcmc\[arviz\]"):
        fitted(BayesianMLPClassifier).to_arviz()
