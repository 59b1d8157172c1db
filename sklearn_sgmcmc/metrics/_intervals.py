"""Metrics of intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklearn_sgmcmc._checks import check_real
from sklearn_sgmcmc.metrics._averages import Average, as_columns, average, row_weights


def interval_coverage(
    y_true: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: str = "uniform_average",
) -> Average:
    """Return the share of targets that lie in their intervals, bounds included: to be compared with the nominal coverage.

    Parameters
    ----------
    y_true, lower, upper : arrays of shape (n_rows,) or (n_rows, n_outputs)
        Targets, and what ``predict_interval`` returns.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.
    multioutput : {"uniform_average", "raw_values"}, default "uniform_average"
        Whether to average over outputs or to return one value for each.

    Returns
    -------
    coverage : float in [0, 1], or ndarray of shape (n_outputs,)
        Share of the rows, or of their total weight.

    Examples
    --------
    >>> interval_coverage([1, 2, 3, 4], [0, 0, 0, 0], [2, 2, 2, 2])
    0.5
    """
    y, lower, upper = _interval_arguments(y_true, lower, upper)
    return average(((lower <= y) & (y <= upper)).astype(np.float64), row_weights(sample_weight, len(y)), multioutput)


def interval_width(
    lower: ArrayLike, upper: ArrayLike, *, sample_weight: ArrayLike | None = None, multioutput: str = "uniform_average"
) -> Average:
    """Return the mean width of intervals, in the units of y.

    Parameters
    ----------
    lower, upper : arrays of shape (n_rows,) or (n_rows, n_outputs)
        What ``predict_interval`` returns.
    sample_weight : array of shape (n_rows,), optional
        Counts.
    multioutput : {"uniform_average", "raw_values"}, default "uniform_average"
        Whether to average over outputs or to return one value for each.

    Returns
    -------
    width : float, or ndarray of shape (n_outputs,)
        At least 0.

    Examples
    --------
    >>> interval_width([0, 1], [2, 5])
    3.0
    """
    _, lower, upper = _interval_arguments(lower, lower, upper)
    return average(upper - lower, row_weights(sample_weight, len(lower)), multioutput)


def interval_score(
    y_true: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    coverage: float = 0.9,
    sample_weight: ArrayLike | None = None,
    multioutput: str = "uniform_average",
) -> Average:
    """Return the mean width of central intervals plus a penalty for the targets that they miss, in the units of y.

    S = (upper - lower) + (2 / (1 - coverage)) (distance from y to the interval): smallest in expectation for the true central
    interval. Source: Gneiting & Raftery 2007, equation 43; Winkler 1972.

    Parameters
    ----------
    y_true, lower, upper : arrays of shape (n_rows,) or (n_rows, n_outputs)
        Targets, and what ``predict_interval`` returns.
    coverage : float in (0, 1), default 0.9
        Nominal coverage of the intervals.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.
    multioutput : {"uniform_average", "raw_values"}, default "uniform_average"
        Whether to average over outputs or to return one value for each.

    Returns
    -------
    score : float, or ndarray of shape (n_outputs,)
        Smaller is better.

    Examples
    --------
    >>> round(interval_score([0, 3], [0, 0], [2, 2], coverage=0.9), 2)
    12.0
    """
    rule = "a probability strictly between 0 and 1"
    coverage = check_real("coverage", coverage, rule=rule, fix="0.9 is the default", high=1.0, open_low=True, open_high=True)
    y, lower, upper = _interval_arguments(y_true, lower, upper)
    missed = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return average(upper - lower + 2 / (1 - coverage) * missed, row_weights(sample_weight, len(y)), multioutput)


def _interval_arguments(
    y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return targets and bounds, (n, K)."""
    y, low, high = as_columns("y_true", y_true), as_columns("lower", lower), as_columns("upper", upper)
    if not y.shape == low.shape == high.shape:
        raise ValueError(f"y_true, lower and upper have shapes {y.shape}, {low.shape} and {high.shape}: they must be the same.")
    if (low > high).any():
        row = int(np.argmax((low > high).any(axis=1)))
        raise ValueError(f"lower exceeds upper at row {row}: pass the bounds in the order of predict_interval, lower first.")
    return y, low, high
