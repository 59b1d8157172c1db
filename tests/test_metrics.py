"""Metrics against hand calculations and simulated calibrated forecasts."""

import numpy as np
import pytest

from sklearn_sgmcmc.metrics import expected_calibration_error


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


def test_wrong_number_of_labels_is_an_error():
    with pytest.raises(ValueError, match="labels has shape"):
        expected_calibration_error([0, 1], [[0.5, 0.5]] * 2, labels=[0, 1, 2])
