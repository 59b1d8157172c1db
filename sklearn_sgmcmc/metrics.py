"""How good is the uncertainty? Functions on arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_consistent_length

from sklearn_sgmcmc._checks import check_integer


def expected_calibration_error(y_true: ArrayLike, y_proba: ArrayLike, *, labels: ArrayLike, n_bins: int = 15) -> float:
    """Return the mean gap between confidence and accuracy over equal-width bins of the highest class probability.

    ECE = sum_b (n_b / n) |accuracy_b - confidence_b|. Source: Guo et al. 2017, equation 3.

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

    Returns
    -------
    error : float in [0, 1]

    Examples
    --------
    >>> round(expected_calibration_error([0, 1, 1, 1], [[0.1, 0.9]] * 4, labels=[0, 1]), 2)
    0.15
    """
    proba = check_array(y_proba, dtype=np.float64, input_name="y_proba")
    truth, classes = np.asarray(y_true), np.asarray(labels)
    check_consistent_length(proba, truth)
    if classes.shape != (proba.shape[1],):
        raise ValueError(f"labels has shape {classes.shape}, and y_proba has {proba.shape[1]} columns: give one label per column.")
    n_bins = check_integer("n_bins", n_bins, low=1, fix="15 is the default")
    confidence = proba.max(axis=1)
    hit = classes[proba.argmax(axis=1)] == truth
    which = np.minimum((confidence * n_bins).astype(np.int64), n_bins - 1)
    gap = np.bincount(which, hit - confidence, n_bins)
    return float(np.abs(gap).sum() / len(truth))
