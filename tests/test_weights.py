"""A weight is a count: a row of weight k is k rows, in the data and in the posterior."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from arviz_stats.base import array_stats
from sklearn.datasets import load_iris

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.estimators import _rows

RNG = np.random.RandomState(0)
X = RNG.randn(60, 3)
Y = X @ [1.0, -0.5, 0.2] + 0.3 * RNG.randn(60)
LABEL = (Y > 0).astype(int)
COUNTS = RNG.randint(0, 4, 60)
FAST = {"hidden_layer_sizes": (4,), "warm_up": 0, "max_iter": 20, "n_draws": 3, "random_state": 0}
both = pytest.mark.parametrize(("estimator", "y"), [(BayesianMLPClassifier, LABEL), (BayesianMLPRegressor, Y)])


# --- in distribution -------------------------------------------------------------------------------------------------------


def test_weights_in_minibatches_give_the_closed_form_posterior_of_a_linear_model():
    """The prior is as strong as the data, so that a factor at the weights would show in mean and standard deviation."""
    noise, prior_scale = 1.0, 0.15
    y = X @ [1.0, -0.5, 0.2] + noise * np.random.RandomState(1).randn(60)
    settings = {"learning_rate": 0.0015, "batch_size": 10, "max_iter": 1000, "n_draws": 40, "burn_in": 0.4, "n_chains": 256}
    model = BayesianMLPRegressor(
        (), sampler="sgld", prior="normal", prior_scale=prior_scale, noise=noise, warm_up=0, random_state=1, **settings
    ).fit(X, y, sample_weight=COUNTS)
    repeated, targets = np.repeat(X, COUNTS, axis=0), np.repeat(y, COUNTS)
    Z = np.column_stack([(repeated - repeated.mean(0)) / repeated.std(0), np.ones(len(repeated))])
    sd = noise / targets.std()
    H = Z.T @ Z / sd**2 + np.eye(4) / prior_scale**2
    mean = np.linalg.solve(H, Z.T @ ((targets - targets.mean()) / targets.std()) / sd**2)
    draws = model.draws_.astype(np.float64)
    found_sd = draws.reshape(-1, 4).std(0)
    ess = array_stats.ess(draws, chain_axis=1, draw_axis=0, method="mean").min()
    np.testing.assert_allclose(found_sd, np.sqrt(np.diag(np.linalg.inv(H))), rtol=0.03)
    np.testing.assert_allclose(draws.mean((0, 1)), mean, atol=5 * (found_sd / ess**0.5).max())


@both
def test_weights_in_minibatches_give_the_predictions_of_repeats(estimator, y):
    """Chains are independent: means of predictions and of their squares over as many steps differ by 5 standard errors at most."""
    settings = {"sampler": "sghmc", "learning_rate": 0.003, "batch_size": 15, "warm_up": 0, "n_draws": 20, "n_chains": 64}
    settings |= {"noise": 0.3} if estimator is BayesianMLPRegressor else {}
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed, rows, targets, weight in ((0, X, y, COUNTS), (1, np.repeat(X, COUNTS, axis=0), np.repeat(y, COUNTS), None)):
            epochs = 12_000 // (len(rows) if weight is None else np.count_nonzero(weight))
            model = estimator((3,), activation="tanh", prior="normal", random_state=seed, max_iter=epochs, **settings)
            model.fit(rows, targets, sample_weight=weight)
            values = model.sample_posterior(X[:10]).reshape(20, 64, 10, -1)[..., 0].astype(np.float64)
            found.append(np.concatenate([values.mean(0), np.square(values).mean(0)], axis=1))  # (chains, statistics)
    standard_error = np.sqrt(sum(values.var(0, ddof=1) for values in found) / 64)
    assert np.abs((found[0].mean(0) - found[1].mean(0)) / standard_error).max() < 5


# --- in the data -----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("batch_size", ["auto", 16])
@pytest.mark.parametrize("kind", ["dense", "sparse", "beyond the copy limit"])
def test_rows_of_weight_zero_are_as_if_absent(estimator, y, batch_size, kind, monkeypatch):
    if kind == "beyond the copy limit":
        monkeypatch.setattr(_rows, "COPY_BYTES", 0)
    rows = scipy.sparse.csr_array(X) if kind == "sparse" else X
    rows_left, keep = rows[np.flatnonzero(COUNTS)], COUNTS > 0
    one = estimator(batch_size=batch_size, **FAST).fit(rows, y, sample_weight=COUNTS)
    two = estimator(batch_size=batch_size, **FAST).fit(rows_left, y[keep], sample_weight=COUNTS[keep])
    np.testing.assert_array_equal(one.draws_, two.draws_)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 2.0, 1: 0.5}])
@pytest.mark.parametrize("batch_size", ["auto", 16])
def test_class_weight_multiplies_counts(class_weight, batch_size):
    settings = FAST | {"batch_size": batch_size}
    one = BayesianMLPClassifier(class_weight=class_weight, **settings).fit(X, LABEL, sample_weight=COUNTS)
    totals = np.bincount(LABEL, COUNTS)
    by_class = totals.sum() / (2 * totals) if class_weight == "balanced" else np.array([2.0, 0.5])
    two = BayesianMLPClassifier(**settings).fit(X, LABEL, sample_weight=COUNTS * by_class[LABEL])
    np.testing.assert_array_equal(one.draws_, two.draws_)


def test_a_class_of_weight_zero_keeps_its_column():
    y = np.arange(60) % 3
    model = BayesianMLPClassifier(class_weight={0: 1.0, 1: 1.0, 2: 0.0}, **FAST).fit(X, y)
    assert model.predict_proba(X).shape == (60, 3)


# --- what is no count --------------------------------------------------------------------------------------------------------

EQUAL = np.full(60, 1.0)
NO_COUNTS = {
    "sum 1": EQUAL / 60,
    "boosted": np.where(LABEL, 1.5, 0.5) / 60,
    "with zeros": np.where(X[:, 0] > 0, 1.0, 0.0) / 30,
    "a twentieth": EQUAL / 20,
}
"""Weights of which only the ratios can be meant."""
FEWER_ROWS = {
    "counts": COUNTS,
    "halves": EQUAL / 2,
    "a fifth": EQUAL / 5,
    "importance": np.random.RandomState(2).gamma(0.3, 1.0, 60) + 1e-9,
    "forgetting": 0.7 ** np.arange(60.0),
    "a mask": (X[:, 0] > 1.5).astype(float),
    "large": 1e6 * EQUAL,
    "none": None,
}
"""Weights that are meant as they stand: some rows count for little, but those that count, count."""


@both
@pytest.mark.parametrize("name", NO_COUNTS)
def test_weights_that_sum_to_far_less_than_the_rows_warn_with_the_fix(estimator, y, name):
    weight = NO_COUNTS[name]
    n = np.count_nonzero(weight)
    with pytest.warns(UserWarning, match=rf"sample_weight .* sums to .* over {n} rows.* pass w \* n / w\.sum\(\), n={n}") as caught:
        estimator(**FAST).fit(X, y, sample_weight=weight)
    assert any(warning.filename == __file__ for warning in caught if "sample_weight" in str(warning.message))
    assert not warned_of_weights(estimator, y, weight * n / weight.sum())


@both
@pytest.mark.parametrize("name", FEWER_ROWS)
def test_weights_of_rows_that_count_are_silent(estimator, y, name):
    assert not warned_of_weights(estimator, y, FEWER_ROWS[name])


def test_class_weights_of_an_unequal_pair_are_silent():
    y = (np.arange(60) % 20 == 0).astype(int)
    for class_weight in ({0: 0.05, 1: 1.0}, "balanced"):
        assert not warned_of_weights(BayesianMLPClassifier, y, None, class_weight=class_weight)
    assert warned_of_weights(BayesianMLPClassifier, y, None, class_weight={0: 0.001, 1: 0.001})


def warned_of_weights(estimator, y, weight, **params):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator(**FAST, **params).fit(X, y, sample_weight=weight)
    return any("sample_weight" in str(warning.message) for warning in caught)


def test_a_weight_warning_turned_error_leaves_the_old_model_whole():
    features, labels = load_iris(return_X_y=True)
    model = BayesianMLPClassifier(**FAST).fit(features, labels)
    before = model.predict_proba(features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="weights are counts"):
            model.fit(features, labels, sample_weight=np.full(150, 1 / 150))
    np.testing.assert_array_equal(model.predict_proba(features), before)


def test_known_noise_of_each_row_is_a_weight_over_known_noise():
    """U of draws under weights (s / s_i)^2 and noise s differs from -log of the joint density with noise s_i by a constant."""
    sd, typical = np.random.RandomState(3).uniform(0.2, 0.8, 60), 0.5
    settings = FAST | {"n_draws": 10}
    model = BayesianMLPRegressor(noise=typical, prior="normal", **settings).fit(X, Y, sample_weight=(typical / sd) ** 2)
    mean = model.sample_posterior(X).reshape(10, 4, 60)
    weights = model.draws_.astype(np.float64)
    joint = 0.5 * (((Y - mean) / sd) ** 2).sum(2) + 0.5 * np.square(weights).sum(2)
    difference = model.potential_ - joint
    np.testing.assert_allclose(difference, difference[0, 0], rtol=1e-5)
