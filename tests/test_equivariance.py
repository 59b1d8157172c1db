"""Units do not matter: a change of scale or origin of X or y changes predictions accordingly and nothing else."""

import numpy as np
import pytest
import scipy.sparse

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor

SHORT = {"hidden_layer_sizes": (6,), "max_iter": 30, "n_draws": 5, "random_state": 0}


def problem(n_rows=80):
    rng = np.random.RandomState(0)
    X = rng.randn(n_rows, 4)
    return X, X[:, 0] - X[:, 1] ** 2 + 0.3 * rng.randn(n_rows)


noises = pytest.mark.parametrize("noise", ["homoscedastic", "heteroscedastic", 0.5])


def fit(X, y, noise="homoscedastic", unit=1.0, **settings):
    noise = noise * unit if isinstance(noise, float) else noise
    return BayesianMLPRegressor(noise=noise, **(SHORT | settings)).fit(X, y)


@noises
@pytest.mark.parametrize("batch_size", ["auto", 16])
def test_powers_of_two_give_bit_equal_models(noise, batch_size):
    X, y = problem()
    one = fit(X, y, noise, batch_size=batch_size)
    two = fit(2 * X, 2**10 * y, noise, unit=2**10, batch_size=batch_size)
    np.testing.assert_array_equal(one.draws_, two.draws_)
    for left, right in zip(one.predict(X, return_std=True), two.predict(2 * X, return_std=True), strict=True):
        np.testing.assert_array_equal(2**10 * left, right)


@noises
@pytest.mark.parametrize(("scale", "shift"), [(1000.0, 0.0), (1e-4, 0.0), (1.0, 1e5)])
def test_scale_and_origin_of_y(noise, scale, shift):
    X, y = problem()
    one, two = fit(X, y, noise), fit(X, scale * y + shift, noise, unit=scale)
    (mean, std), (scaled_mean, scaled_std) = one.predict(X, return_std=True), two.predict(X, return_std=True)
    np.testing.assert_allclose((scaled_mean - shift) / scale, mean, atol=1e-5 * y.std())
    np.testing.assert_allclose(scaled_std / scale, std, atol=1e-5 * y.std())
    density = one.log_predictive_density(X, y) - np.log(scale)
    np.testing.assert_allclose(two.log_predictive_density(X, scale * y + shift), density, atol=1e-3)


@pytest.mark.parametrize(("scale", "shift"), [(1000.0, 0.0), (1e-4, 0.0), (1.0, 1e5), (np.array([1.0, 1e-3, 1e6, 2.0]), 5.0)])
def test_scale_and_origin_of_x(scale, shift):
    X, y = problem()
    one, two = fit(X, y), fit(scale * X + shift, y)
    np.testing.assert_allclose(two.predict(scale * X + shift), one.predict(X), atol=1e-5 * y.std())


@pytest.mark.parametrize("magnitude", [1e-300, 1e-30, 1e30, 1e300])
def test_extreme_units_give_the_same_model(magnitude):
    X, y = problem()
    one, two = fit(X, y), fit(X * magnitude, y * magnitude)
    np.testing.assert_allclose(two.predict(X * magnitude) / magnitude, one.predict(X), atol=1e-5 * y.std())
    assert np.isfinite(two.predict(X * magnitude, return_std=True)[1]).all()


def test_units_in_which_numbers_lose_digits_give_nearly_the_same_model():
    """At 1e-310, 46 of the 53 bits are left: the standard deviation itself is no normal number."""
    X, y = problem()
    one, two = fit(X, y), fit(X * 1e-310, y * 1e-310)
    np.testing.assert_allclose(two.predict(X * 1e-310) / 1e-310, one.predict(X), atol=1e-5 * y.std())


def test_subnormal_columns_of_a_sparse_matrix_are_scaled_as_those_of_a_dense_one():
    """A sparse matrix is scaled during the run, in which other numbers of this size are 0."""
    X, y = problem()
    one, two = (fit(rows, y, batch_size=16) for rows in (X * 1e-310, scipy.sparse.csr_matrix(X * 1e-310)))
    np.testing.assert_array_equal(one.draws_, two.draws_)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_every_output_has_its_own_unit(n_outputs):
    X, y = problem()
    Y = np.column_stack([y, X[:, 2], y * X[:, 3]])[:, :n_outputs]
    units = np.array([1.0, 1024.0, 2.0**-8])[:n_outputs]
    one, two = fit(X, Y), fit(X, Y * units)
    np.testing.assert_array_equal(one.predict(X) * units, two.predict(X))
    np.testing.assert_array_equal(one.predict_noise(X) * units, two.predict_noise(X))


def test_classifier_does_not_see_the_units_of_x():
    X, y = problem()
    label = y > 0
    one, two = BayesianMLPClassifier(**SHORT).fit(X, label), BayesianMLPClassifier(**SHORT).fit(1000 * X + 3, label)
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(1000 * X + 3), atol=1e-5)


def test_constant_columns_and_constant_targets_are_harmless():
    X, _ = problem()
    X[:, 1] = 12345.6789
    model = fit(X, np.full(len(X), 7.25))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 7.25, atol=1.0)
    assert np.isfinite(std).all()
