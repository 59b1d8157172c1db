"""Metrics of class probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from sklearn_sgmcmc._checks import check_integer
from sklearn_sgmcmc.metrics._averages import row_weights

SUM_TOLERANCE = 1e-3
"""How far from 1 the sum of a row of probabilities may be: that of float16."""


def brier_loss(y_true: ArrayLike, y_proba: ArrayLike, *, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Return the mean squared distance between probabilities and outcome, summed over all classes.

    B = (1 / n) sum_n sum_k (p_nk - 1{y_n = k})^2. Source: Brier 1950. For two classes it is twice the
    ``sklearn.metrics.brier_score_loss`` of one of them.

    Parameters
    ----------
    y_true : array of shape (n_rows,)
        Labels.
    y_proba : array of shape (n_rows, n_classes)
        Class probabilities, columns in the order of ``labels``.
    labels : array of shape (n_classes,)
        A classifier's ``classes_``.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.

    Returns
    -------
    loss : float in [0, 2]
        0 if every row's outcome had probability 1.

    Examples
    --------
    >>> round(brier_loss([0, 1], [[0.5, 0.5], [0.2, 0.8]], labels=[0, 1]), 2)
    0.29
    """
    proba, index, weight = _class_arguments(y_true, y_proba, labels, sample_weight)
    one_hot = np.arange(proba.shape[1]) == index[:, None]
    return float(np.average(np.square(proba - one_hot).sum(axis=1), weights=weight))


def reliability_curve(
    y_true: ArrayLike, y_proba: ArrayLike, *, labels: ArrayLike, n_bins: int = 15, sample_weight: ArrayLike | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return confidence, accuracy and number of rows in equal-width bins of the highest class probability.

    Parameters
    ----------
    y_true : array of shape (n_rows,)
        Labels.
    y_proba : array of shape (n_rows, n_classes)
        Class probabilities, columns in the order of ``labels``.
    labels : array of shape (n_classes,)
        A classifier's ``classes_``.
    n_bins : int >= 1, default 15
        Bins of confidence between 0 and 1; empty ones are left out.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.

    Returns
    -------
    confidence, accuracy : ndarrays of shape (n_filled_bins,)
        Mean highest probability, and share of rows whose most probable class is right.
    count : ndarray of shape (n_filled_bins,)
        Rows in the bin, or their total weight.

    Examples
    --------
    >>> confidence, accuracy, count = reliability_curve([0, 1, 1, 1], [[0.1, 0.9]] * 4, labels=[0, 1])
    >>> accuracy.tolist(), count.tolist()
    ([0.75], [4.0])
    """
    proba, index, weight = _class_arguments(y_true, y_proba, labels, sample_weight)
    n_bins = check_integer("n_bins", n_bins, low=1, fix="15 is the default")
    confidence = proba.max(axis=1)
    hit = proba.argmax(axis=1) == index
    which = np.minimum((confidence * n_bins).astype(np.int64), n_bins - 1)
    count = np.bincount(which, weight, n_bins).astype(np.float64)
    filled = count > 0
    mean_confidence, accuracy = (np.bincount(which, weight * value, n_bins)[filled] / count[filled] for value in (confidence, hit))
    return mean_confidence, accuracy, count[filled]


def expected_calibration_error(
    y_true: ArrayLike, y_proba: ArrayLike, *, labels: ArrayLike, n_bins: int = 15, sample_weight: ArrayLike | None = None
) -> float:
    """Return the mean gap between confidence and accuracy over equal-width bins of the highest class probability.

    ECE = sum_b (n_b / n) |accuracy_b - confidence_b|. Source: Guo et al. 2017, equation 3. It tells how far to trust
    probabilities, not how good they are: a constant forecast of the class frequencies has an ECE near 0. Choose models by the log
    loss or the Brier loss.

    Parameters
    ----------
    y_true : array of shape (n_rows,)
        Labels.
    y_proba : array of shape (n_rows, n_classes)
        Class probabilities, columns in the order of ``labels``.
    labels : array of shape (n_classes,)
        A classifier's ``classes_``.
    n_bins : int >= 1, default 15
        Bins of confidence between 0 and 1.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.

    Returns
    -------
    error : float in [0, 1]
        0 if confidence and accuracy agree in every bin.

    Examples
    --------
    >>> round(expected_calibration_error([0, 1, 1, 1], [[0.1, 0.9]] * 4, labels=[0, 1]), 2)
    0.15
    """
    confidence, accuracy, count = reliability_curve(y_true, y_proba, labels=labels, n_bins=n_bins, sample_weight=sample_weight)
    return float(np.average(np.abs(accuracy - confidence), weights=count))


def _class_arguments(
    y_true: ArrayLike, y_proba: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Return probabilities (n, K), the column of each row's label, and weights (n,)."""
    proba = np.asarray(check_array(y_proba, dtype=np.float64, input_name="y_proba"))
    truth, classes = column_or_1d(y_true), np.asarray(labels)
    check_consistent_length(proba, truth)
    if classes.shape != (proba.shape[1],):
        raise ValueError(f"labels has shape {classes.shape}, and y_proba has {proba.shape[1]} columns: give one label per column.")
    improper = (proba < 0).any(axis=1) | (np.abs(proba.sum(axis=1) - 1) > SUM_TOLERANCE)
    if improper.any():
        row = proba[improper][0].tolist()
        raise ValueError(f"y_proba has the row {row}: rows must be >= 0 and sum to 1; pass what predict_proba returns.")
    match = truth[:, None] == classes
    known = match.any(axis=1)
    if not known.all():
        raise ValueError(
            f"y_true holds {truth[~known].tolist()[0]!r}, which labels={classes.tolist()} lack: give the classifier's classes_."
        )
    return proba, match.argmax(axis=1), row_weights(sample_weight, len(truth))
