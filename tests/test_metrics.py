"""Metrics against hand calculations, quadrature and scikit-learn."""

from itertools import pairwise

import numpy as np
import pytest
import sklearn.metrics
from scipy.integrate import quad
from scipy.stats import norm

from sklearn_sgmcmc import metrics
from sklearn_sgmcmc.metrics import (
    brier_loss,
    expected_calibration_error,
    gaussian_crps,
    gaussian_log_loss,
    interval_coverage,
    interval_score,
    interval_width,
    mixture_crps,
    mixture_log_loss,
    probability_integral_transform,
    reliability_curve,
    sharpness,
)

RNG = np.random.RandomState(0)
MEAN = 3 * RNG.randn(4, 6, 2)
STD = 0.2 + RNG.rand(4, 6, 2)
TARGET = 3 * RNG.randn(6, 2)


# --- classes -----------------------------------------------------------------------------------------------------------------


def random_proba():
    proba = RNG.dirichlet(np.ones(3), 50)
    return np.array(["a", "b", "c"])[RNG.randint(3, size=50)], proba


def test_a_calibrated_forecast_has_little_error():
    rng = np.random.RandomState(0)
    p = rng.rand(200_000)
    y = (rng.rand(len(p)) < p).astype(int)
    assert expected_calibration_error(y, np.column_stack([1 - p, p]), labels=[0, 1]) < 0.005


def test_always_sure_and_always_wrong_is_one():
    assert expected_calibration_error(["a", "a"], [[0.0, 1.0]] * 2, labels=["a", "b"]) == 1.0


def test_gaps_do_not_cancel_between_bins():
    proba = [[0.95, 0.05]] * 2 + [[0.55, 0.45]] * 2
    y = [0, 1, 0, 0]  # .95 right half of the time, .55 always
    assert expected_calibration_error(y, proba, labels=[0, 1]) == pytest.approx(0.45)


def test_brier_loss_is_twice_that_of_scikit_learn_for_two_classes():
    p = RNG.rand(40)
    y = RNG.randint(2, size=40)
    weight = RNG.rand(40)
    ours = brier_loss(y, np.column_stack([1 - p, p]), labels=[0, 1], sample_weight=weight)
    assert ours == pytest.approx(2 * sklearn.metrics.brier_score_loss(y, p, sample_weight=weight), rel=1e-12)


def test_brier_loss_of_many_classes_sums_over_one_against_the_rest():
    y, proba = random_proba()
    by_class = [sklearn.metrics.brier_score_loss(y == label, proba[:, k]) for k, label in enumerate("abc")]
    assert brier_loss(y, proba, labels=["a", "b", "c"]) == pytest.approx(sum(by_class), rel=1e-12)


def test_reliability_curve_counts_every_row_once():
    y, proba = random_proba()
    confidence, accuracy, count = reliability_curve(y, proba, labels=["a", "b", "c"], n_bins=10)
    right = np.array(["a", "b", "c"])[proba.argmax(1)] == y
    assert count.sum() == 50
    assert accuracy @ count == right.sum()
    assert confidence @ count == pytest.approx(proba.max(1).sum())


@pytest.mark.parametrize("metric", [brier_loss, expected_calibration_error])
def test_weight_k_equals_k_rows_for_classes(metric):
    y, proba = random_proba()
    k = RNG.randint(0, 3, 50)
    weighted = metric(y, proba, labels=["a", "b", "c"], sample_weight=k)
    assert weighted == pytest.approx(metric(np.repeat(y, k), np.repeat(proba, k, axis=0), labels=["a", "b", "c"]))


# --- distributions -----------------------------------------------------------------------------------------------------------


def crps_by_quadrature(y, mean, std):
    def cdf(x):
        return norm.cdf((x - mean) / std).mean()

    low, high = min(y, (mean - 12 * std).min()), max(y, (mean + 12 * std).max())
    knots = np.unique(np.r_[low, np.sort(mean), y, high])
    pieces = pairwise(knots)
    return sum(quad(lambda x: (cdf(x) - (x >= y)) ** 2, a, b, epsabs=1e-12)[0] for a, b in pieces)


def test_mixture_crps_is_the_integral_that_defines_it():
    expected = [[crps_by_quadrature(TARGET[n, k], MEAN[:, n, k], STD[:, n, k]) for k in range(2)] for n in range(6)]
    np.testing.assert_allclose(mixture_crps(TARGET, MEAN, STD, multioutput="raw_values"), np.mean(expected, axis=0), rtol=1e-9)


def test_gaussian_crps_is_its_closed_form():
    z = (TARGET - MEAN[0]) / STD[0]
    closed = STD[0] * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert gaussian_crps(TARGET, MEAN[0], STD[0]) == pytest.approx(closed.mean(), rel=1e-12)


def test_crps_of_point_masses_is_the_ensemble_crps():
    y, draws = RNG.randn(5), RNG.randn(3, 5)
    pairs = np.abs(draws[:, None] - draws).mean(axis=(0, 1))
    expected = (np.abs(y - draws).mean(axis=0) - pairs / 2).mean()
    assert mixture_crps(y, draws, np.zeros((3, 5))) == pytest.approx(expected, rel=1e-12)


def test_crps_does_not_depend_on_the_chunks(monkeypatch):
    whole = mixture_crps(TARGET, MEAN, STD)
    monkeypatch.setattr(metrics._distributions, "CHUNK_ELEMENTS", 5)
    assert mixture_crps(TARGET, MEAN, STD) == pytest.approx(whole, rel=1e-14)


def test_mixture_log_loss_is_that_of_products_over_outputs():
    density = norm.pdf(TARGET, MEAN, STD).prod(axis=2).mean(axis=0)
    assert mixture_log_loss(TARGET, MEAN, STD) == pytest.approx(-np.log(density).mean(), rel=1e-12)


def test_gaussian_log_loss_is_minus_the_log_density():
    expected = -norm.logpdf(TARGET, MEAN[0], STD[0]).sum(axis=1).mean()
    assert gaussian_log_loss(TARGET, MEAN[0], STD[0]) == pytest.approx(expected, rel=1e-12)


def test_log_loss_of_a_far_target_does_not_underflow():
    assert mixture_log_loss([100.0], [[0.0], [1.0]], [[1.0], [1.0]]) == pytest.approx(
        0.5 * 99**2 + 0.5 * np.log(2 * np.pi) + np.log(2)
    )


def test_integral_transform_is_the_mixture_cdf():
    pit = probability_integral_transform(TARGET, MEAN, STD)
    np.testing.assert_allclose(pit, norm.cdf(TARGET, MEAN, STD).mean(axis=0), rtol=1e-12)


def test_sharpness_is_the_root_mean_square():
    np.testing.assert_allclose(sharpness([[3.0, 1.0], [4.0, 1.0]], multioutput="raw_values"), [np.sqrt(12.5), 1])


@pytest.mark.parametrize("metric", [mixture_crps, mixture_log_loss])
def test_weight_k_equals_k_rows_for_distributions(metric):
    k = [0, 2, 1, 3, 1, 0]
    repeated = metric(np.repeat(TARGET, k, axis=0), np.repeat(MEAN, k, axis=1), np.repeat(STD, k, axis=1))
    assert metric(TARGET, MEAN, STD, sample_weight=k) == pytest.approx(repeated, rel=1e-12)


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e160, 1e300])
def test_units_of_y_do_not_matter(unit):
    small = np.array([1.0, 1e-12])  # each output has its own unit
    for metric in (mixture_crps, gaussian_crps):
        parts = (TARGET, MEAN, STD) if metric is mixture_crps else (TARGET, MEAN[0], STD[0])
        expected = metric(*parts, multioutput="raw_values") * small * unit
        found = metric(*(part * small * unit for part in parts), multioutput="raw_values")
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(sharpness(STD[0] * unit), sharpness(STD[0]) * unit, rtol=1e-12)
    loss = mixture_log_loss(TARGET * unit, MEAN * unit, STD * unit)
    np.testing.assert_allclose(loss, mixture_log_loss(TARGET, MEAN, STD) + 2 * np.log(unit), rtol=1e-12)
    pit = probability_integral_transform(TARGET * unit, MEAN * unit, STD * unit)
    np.testing.assert_allclose(pit, probability_integral_transform(TARGET, MEAN, STD), rtol=1e-12)


# --- intervals ---------------------------------------------------------------------------------------------------------------

BOUNDS = np.sort(RNG.randn(2, 100, 2), axis=0)
POINTS = RNG.randn(100, 2)


def test_coverage_counts_the_targets_inside():
    counted = [sum(BOUNDS[0, n, k] <= POINTS[n, k] <= BOUNDS[1, n, k] for n in range(100)) / 100 for k in range(2)]
    np.testing.assert_allclose(interval_coverage(POINTS, *BOUNDS, multioutput="raw_values"), counted, rtol=1e-12)


def test_a_target_on_a_bound_is_covered():
    assert interval_coverage([1.0, 2.0], [1.0, 1.0], [2.0, 2.0]) == 1.0


def test_width_is_averaged_with_the_weights():
    assert interval_width([0, 0], [1, 3], sample_weight=[3, 1]) == pytest.approx(1.5)


def test_interval_score_is_the_sum_of_two_pinball_losses():
    pinball = [
        sklearn.metrics.mean_pinball_loss(POINTS, bound, alpha=alpha) for bound, alpha in zip(BOUNDS, (0.1, 0.9), strict=True)
    ]
    assert interval_score(POINTS, *BOUNDS, coverage=0.8) == pytest.approx(2 / 0.2 * sum(pinball), rel=1e-12)


# --- errors ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_calibration_error([0, 1], [[0.5, 0.5]] * 2, labels=[0, 1, 2]), "labels has shape"),
        (lambda: brier_loss([0, 7], [[0.5, 0.5]] * 2, labels=[0, 1]), "y_true holds 7.*give the classifier's classes_"),
        (lambda: brier_loss([0], [[0.5, 0.7]], labels=[0, 1]), "y_proba has the row .*sum to 1"),
        (lambda: brier_loss([0], [[0.5, 0.5]], labels=[0, 1], sample_weight=[-1]), "sample_weight=.*>= 0"),
        (lambda: mixture_crps([1.0], [1.0], [1.0]), "mean has shape .*predict_mixture"),
        (lambda: mixture_crps([1.0], [[1.0]], [[1.0], [1.0]]), "std has shape"),
        (lambda: gaussian_crps([1.0], [1.0], [-1.0]), "std holds -1.0.*>= 0"),
        (lambda: gaussian_log_loss([1.0], [1.0], [0.0]), "std holds 0"),
        (lambda: gaussian_log_loss([1.0], [0.0], [1e-200]), r"y_true=\[1.0\] at row 0 is so far"),
        (lambda: sharpness([1.0, 1.0], sample_weight=[1e308, 1e308]), "sample_weight=.*finite sum"),
        (lambda: gaussian_crps([np.nan], [1.0], [1.0]), "y_true contains NaN"),
        (lambda: gaussian_crps([1.0], [1.0], [1.0], multioutput="mean"), "multioutput='mean'"),
        (lambda: interval_coverage([1.0], [2.0], [1.0]), "lower exceeds upper at row 0"),
        (lambda: interval_coverage([1.0, 2.0], [2.0], [1.0]), "shapes"),
        (lambda: interval_score([1.0], [0.0], [1.0], coverage=1), "coverage=1"),
    ],
)
def test_errors_name_the_parameter_and_the_rule(call, message):
    with pytest.raises(ValueError, match=message):
        call()
