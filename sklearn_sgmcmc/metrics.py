"""How good is the uncertainty? Functions on arrays, and scorers for ``scoring=``.

Arrays of targets are (n_rows,) or (n_rows, n_outputs); those of a mixture have the draws in front, as ``predict_mixture`` returns
them. Names that end in ``_loss``, ``_score``, ``_error`` and ``crps`` are losses: smaller is better.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_consistent_length, column_or_1d, gen_batches
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from sklearn_sgmcmc._checks import check_choice, check_integer, check_real
from sklearn_sgmcmc.threads import one_thread

CHUNK_ELEMENTS = 2**15
"""Draws x targets held at once by ``mixture_crps``: a few arrays of this size fit the cache."""
CHUNK_ROWS = 4096
"""Rows whose mixtures a scorer holds at once."""
FAR = 20.0
"""m / r from which E|N(m, r^2 / 2)| is |m| to float64; the exponential is far slower where it underflows."""
SUM_TOLERANCE = 1e-3
"""How far from 1 the sum of a row of probabilities may be: that of float16."""

Average: TypeAlias = "float | NDArray[np.float64]"


# --- classes -----------------------------------------------------------------------------------------------------------------


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


# --- distributions -----------------------------------------------------------------------------------------------------------


def mixture_log_loss(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the mean negative log density of the targets under equal mixtures of Gaussians, in nats.

    L = -(1 / n) sum_n log (1 / M) sum_m prod_k N(y_nk; mean_mnk, std_mnk^2): outputs are independent given the component. It
    equals minus the mean of a regressor's ``log_predictive_density``. Source: Gneiting & Raftery 2007, section 4.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    mean, std : arrays of shape (n_draws, n_rows) or (n_draws, n_rows, n_outputs); std > 0
        What ``predict_mixture`` returns.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.

    Returns
    -------
    loss : float
        Falls by log(a) per output if y is measured in units a times as large.

    Raises
    ------
    ValueError
        If a standard deviation is not positive, or shapes do not agree.

    Examples
    --------
    >>> round(mixture_log_loss([0.0], [[-1.0], [1.0]], [[1.0], [1.0]]), 4)
    1.4189
    """
    y, mean, std, weight = _mixture_arguments(y_true, mean, std, sample_weight)
    _check_density(std)
    log_density = (-0.5 * np.square((y - mean) / std) - np.log(std) - 0.5 * math.log(2 * math.pi)).sum(axis=2)
    with np.errstate(under="ignore"):
        log_mean = np.logaddexp.reduce(log_density, axis=0) - math.log(len(mean))
    return -float(np.average(log_mean, weights=weight))


def gaussian_log_loss(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the mean negative log density of the targets under Gaussians, in nats.

    The parameters are those of ``mixture_log_loss``, with ``mean`` and ``std`` shaped like y.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    mean, std : arrays shaped like y; std > 0
        What ``predict(X, return_std=True)`` returns.
    sample_weight : array of shape (n_rows,), optional
        Counts.

    Returns
    -------
    loss : float
        In nats per row.

    Examples
    --------
    >>> round(gaussian_log_loss([0.0], [0.0], [1.0]), 4)
    0.9189
    """
    return mixture_log_loss(y_true, _one_component("mean", mean), _one_component("std", std), sample_weight=sample_weight)


def mixture_crps(
    y_true: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: str = "uniform_average",
) -> Average:
    """Return the mean continuous ranked probability score of equal mixtures of Gaussians, in the units of y.

    CRPS(F, y) = integral (F(x) - 1{x >= y})^2 dx = (1 / M) sum_i A(y - mean_i, std_i^2)
    - (1 / 2 M^2) sum_ij A(mean_i - mean_j, std_i^2 + std_j^2), with A(m, v) = E|N(m, v)|. Exact; time grows with M^2, memory does
    not. Source: Grimit et al. 2006.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    mean, std : arrays of shape (n_draws, n_rows) or (n_draws, n_rows, n_outputs); std >= 0
        What ``predict_mixture`` returns.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.
    multioutput : {"uniform_average", "raw_values"}, default "uniform_average"
        Whether to average over outputs or to return one value for each.

    Returns
    -------
    crps : float, or ndarray of shape (n_outputs,)
        At least 0; the absolute error of a forecast that is a point.

    Examples
    --------
    >>> round(mixture_crps([0.0], [[-1.0], [1.0]], [[1.0], [1.0]]), 4)
    0.3594
    """
    y, mean, std, weight = _mixture_arguments(y_true, mean, std, sample_weight)
    n_draws = len(mean)
    columns = [array.reshape(len(array), -1) for array in (y[None], mean, np.square(std))]
    score = np.empty(columns[0].shape[1])
    with one_thread():
        for some in gen_batches(len(score), max(1, CHUNK_ELEMENTS // n_draws)):
            target, center, variance = (torch.from_numpy(np.array(column[:, some], order="C")) for column in columns)
            spread = _mean_absolute(torch.zeros_like(center), 2 * variance).sum(dim=0)
            for lag in range(1, n_draws):
                pair = _mean_absolute(center[lag:] - center[:-lag], variance[lag:] + variance[:-lag])
                spread += 2 * pair.sum(dim=0)
            score[some] = (_mean_absolute(target - center, variance).mean(dim=0) - spread / (2 * n_draws**2)).numpy()
    return _average(score.reshape(y.shape), weight, multioutput)


def gaussian_crps(
    y_true: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: str = "uniform_average",
) -> Average:
    """Return the mean continuous ranked probability score of Gaussians, in the units of y.

    CRPS = s [z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)], z = (y - mean) / s. Source: Gneiting et al. 2005, equation 5.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    mean, std : arrays shaped like y; std >= 0
        What ``predict(X, return_std=True)`` returns.
    sample_weight : array of shape (n_rows,), optional
        Counts.
    multioutput : {"uniform_average", "raw_values"}, default "uniform_average"
        Whether to average over outputs or to return one value for each.

    Returns
    -------
    crps : float, or ndarray of shape (n_outputs,)
        In the units of y.

    Examples
    --------
    >>> round(gaussian_crps([0.0], [0.0], [1.0]), 4)
    0.2337
    """
    components = _one_component("mean", mean), _one_component("std", std)
    return mixture_crps(y_true, *components, sample_weight=sample_weight, multioutput=multioutput)


def probability_integral_transform(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> NDArray[np.float64]:
    """Return the predictive distribution function of equal mixtures of Gaussians at the targets: uniform if calibrated.

    u = (1 / M) sum_m Phi((y - mean_m) / std_m). The central interval of coverage c holds y where |2 u - 1| <= c. Source: Dawid
    1984; Gneiting et al. 2007.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    mean, std : arrays of shape (n_draws, n_rows) or (n_draws, n_rows, n_outputs); std > 0
        What ``predict_mixture`` returns.

    Returns
    -------
    probability : ndarray shaped like y
        In [0, 1].

    Raises
    ------
    ValueError
        If a standard deviation is not positive, or shapes do not agree.

    Examples
    --------
    >>> probability_integral_transform([0.0], [[-1.0], [1.0]], [[1.0], [1.0]]).tolist()
    [0.5]
    """
    y, mean, std, _ = _mixture_arguments(y_true, mean, std, None)
    _check_density(std)
    return np.asarray(ndtr((y - mean) / std).mean(axis=0).reshape(np.shape(y_true)))


def sharpness(std: ArrayLike, *, sample_weight: ArrayLike | None = None, multioutput: str = "uniform_average") -> Average:
    """Return the root mean square of predictive standard deviations: how narrow the forecasts are, whether right or wrong.

    Of calibrated forecasts the sharpest is the best. Source: Gneiting et al. 2007; Kuleshov et al. 2018.

    Parameters
    ----------
    std : array of shape (n_rows,) or (n_rows, n_outputs), >= 0
        What ``predict(X, return_std=True)`` returns second.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.
    multioutput : {"uniform_average", "raw_values"}, default "uniform_average"
        Whether to average over outputs or to return one value for each.

    Returns
    -------
    sharpness : float, or ndarray of shape (n_outputs,)
        In the units of y.

    Examples
    --------
    >>> round(sharpness([3.0, 4.0]), 3)
    3.536
    """
    columns = _columns("std", std)
    _check_spread(columns)
    mean_square = np.average(np.square(columns), axis=0, weights=_weights(sample_weight, len(columns)))
    return _over_outputs(np.sqrt(mean_square), multioutput)


# --- intervals ---------------------------------------------------------------------------------------------------------------


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
    return _average(((lower <= y) & (y <= upper)).astype(np.float64), _weights(sample_weight, len(y)), multioutput)


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
    return _average(upper - lower, _weights(sample_weight, len(lower)), multioutput)


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
    coverage = check_real("coverage", coverage, rule=rule, fix="0.9 is the default", open_low=True, high=math.nextafter(1, 0))
    y, lower, upper = _interval_arguments(y_true, lower, upper)
    missed = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return _average(upper - lower + 2 / (1 - coverage) * missed, _weights(sample_weight, len(y)), multioutput)


# --- scorers -----------------------------------------------------------------------------------------------------------------


class UncertaintyScorer(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Score a fitted estimator by a metric of what one of its methods returns; larger is better.

    score = sign * metric(y, *estimator.method(X, **params), sample_weight=sample_weight)

    Pass it as ``scoring=``. The method is looked for in Pipelines (X goes through the steps before the last) and in fitted
    searches. Mixtures are scored in chunks of rows: memory does not grow with draws times rows.

    Parameters
    ----------
    metric : callable
        One of this module or one like it: ``metric(y_true, *prediction, sample_weight=None)``, a mean over rows. It is also given
        the classifier's ``classes_`` if it has a parameter ``labels``, and those of ``params`` that it has.
    method : str
        Name of a method of the estimator, such as "predict_mixture".
    greater_is_better : bool, default False
        Whether the metric is returned as it is or with its sign changed.
    params : dict or None, default None
        Further arguments of the method.

    Examples
    --------
    >>> UncertaintyScorer(interval_score, "predict_interval", params={"coverage": 0.5}).method
    'predict_interval'
    """

    __metadata_request__score = {"estimator": UNUSED}  # routing offers sample_weight alone

    def __init__(
        self,
        metric: Callable[..., Any],
        method: str,
        *,
        greater_is_better: bool = False,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.metric = metric
        self.method = method
        self.greater_is_better = greater_is_better
        self.params = params

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the score."""
        return self.score(estimator, X, y, sample_weight)

    def score(self, estimator: Any, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the score of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator, Pipeline, search or, for intervals, TransformedTargetRegressor
            It, or the estimator within, has the method.
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Inputs.
        y : array of shape (n_rows,) or (n_rows, n_outputs)
            Labels or targets.
        sample_weight : array of shape (n_rows,), optional
            Counts: a row of weight k counts as k rows; not negative.

        Returns
        -------
        score : float
            Larger is better.
        """
        model, X = unwrap(estimator, X, self.method)
        predict = getattr(model, self.method)
        y = np.asarray(y)
        check_consistent_length(X, y)
        weight = _weights(sample_weight, len(y))
        params = dict(self.params or {})
        metric = self._metric(estimator, params)
        rows_together = CHUNK_ROWS if self.method == "predict_mixture" else max(1, len(y))
        total = 0.0
        for rows in gen_batches(len(y), rows_together):
            if weight[rows].any():
                prediction = predict(_take(X, rows) if len(y) > rows_together else X, **params)
                prediction = prediction if isinstance(prediction, tuple) else (prediction,)
                total += float(metric(y[rows], *prediction, sample_weight=weight[rows])) * weight[rows].sum()
        loss = total / weight.sum()
        return float(loss if self.greater_is_better else -loss)

    def _metric(self, estimator: Any, params: dict[str, Any]) -> Callable[..., Any]:
        """Return the metric with those of the parameters and of the class labels that it asks for."""
        asked = inspect.signature(self.metric).parameters
        given = {name: value for name, value in params.items() if name in asked}
        if "labels" in asked:
            given["labels"] = estimator.classes_
        return partial(self.metric, **given)

    def _accept_sample_weight(self) -> bool:
        """Tell a search over several scorers that weights are welcome."""
        return True


neg_log_loss_scorer = UncertaintyScorer(log_loss, "predict_proba")
"""Classifiers: minus the log loss, in nats. Unlike ``scoring="neg_log_loss"`` it knows the classes that a fold lacks."""
neg_brier_loss_scorer = UncertaintyScorer(brier_loss, "predict_proba")
"""Classifiers: minus the Brier loss over all classes."""
neg_calibration_error_scorer = UncertaintyScorer(expected_calibration_error, "predict_proba")
"""Classifiers: minus the expected calibration error. To report, not to choose by."""
log_density_scorer = UncertaintyScorer(mixture_log_loss, "predict_mixture")
"""Regressors: mean log predictive density, in nats and the units of y."""
neg_crps_scorer = UncertaintyScorer(mixture_crps, "predict_mixture")
"""Regressors: minus the CRPS, in the units of y."""
neg_interval_score_scorer = UncertaintyScorer(interval_score, "predict_interval", params={"coverage": 0.9})
"""Regressors: minus the interval score of 90 % intervals, in the units of y."""
coverage_scorer = UncertaintyScorer(interval_coverage, "predict_interval", greater_is_better=True, params={"coverage": 0.9})
"""Regressors: the share of targets in their 90 % intervals. To report, not to choose by: 0.9 is best."""


def unwrap(estimator: Any, X: Any, name: str) -> tuple[Any, Any]:
    """Return the estimator inside Pipelines and fitted searches that has a method or attribute, and X as that estimator sees it.

    ``predict_interval`` is also found behind a TransformedTargetRegressor with a monotone transformation of each output: the
    bounds are transformed back. X of None stays None.

    Raises
    ------
    AttributeError
        If there is no such method, or if it lies behind a transformation of y that it does not survive.
    """
    check_is_fitted(estimator)
    inner = estimator
    while not hasattr(inner, name):
        if isinstance(inner, Pipeline):
            X = X if X is None or len(inner) == 1 else inner[:-1].transform(X)
            inner = inner[-1]
        elif hasattr(inner, "best_estimator_"):
            inner = inner.best_estimator_
        elif isinstance(inner, TransformedTargetRegressor) and name == "predict_interval":
            model, X = unwrap(inner.regressor_, X, name)
            return _IntervalsInY(model, inner.transformer_), X
        elif isinstance(inner, TransformedTargetRegressor):
            raise AttributeError(
                f"estimator={estimator!r} transforms y, and {name} does not survive that: use intervals "
                "(neg_interval_score_scorer), pass its regressor_ with transformed targets, or leave TransformedTargetRegressor "
                "out: BayesianMLPRegressor standardises y by itself (normalize_y=True)."
            )
        else:
            raise AttributeError(
                f"estimator={estimator!r} has no {name}, and the {type(inner).__name__} in it has none: give a "
                "BayesianMLPClassifier or BayesianMLPRegressor, alone, in a Pipeline or in a search, or choose another metric."
            )
    return inner, X


@dataclass(frozen=True)
class _IntervalsInY:
    """The intervals of a model of transformed targets, on the scale of the targets."""

    model: Any
    transformer: Any

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the bounds; a falling transformation swaps them."""
        bounds = self.model.predict_interval(X, coverage)
        lower, upper = (np.asarray(self.transformer.inverse_transform(bound.reshape(len(bound), -1))) for bound in bounds)
        return np.minimum(lower, upper), np.maximum(lower, upper)


def _take(X: Any, rows: slice) -> Any:
    """Return some of the rows of an array, sparse matrix or data frame."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


# --- arguments and averages --------------------------------------------------------------------------------------------------


def _mean_absolute(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Return E|N(mean, variance)| = m erf(m / r) + r exp(-m^2 / r^2) / sqrt(pi), r^2 = 2 variance."""
    r = (2 * variance).sqrt_().clamp_min_(np.finfo(np.float64).tiny)  # a point mass: |m|
    z = (mean / r).clamp_(-FAR, FAR)
    return torch.erf(z).mul_(mean).add_(r.mul_(z.square_().neg_().exp_()), alpha=1 / math.sqrt(math.pi))


def _average(score: NDArray[np.float64], weight: NDArray[np.float64], multioutput: str) -> Average:
    """Return the weighted mean of scores (n, K) over rows and, if asked, over outputs."""
    return _over_outputs(np.average(score, axis=0, weights=weight), multioutput)


def _over_outputs(score: NDArray[np.float64], multioutput: str) -> Average:
    """Return scores by output, or their mean."""
    check_choice("multioutput", multioutput, ("uniform_average", "raw_values"))
    return score if multioutput == "raw_values" else float(score.mean())


def _weights(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
    """Return one weight >= 0 per row, not all of them zero."""
    if sample_weight is None:
        return np.ones(n_rows)
    given = column_or_1d(check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"))
    weight = np.asarray(given, dtype=np.float64)
    if len(weight) != n_rows or not (weight >= 0).all() or not weight.any():
        raise ValueError(
            f"sample_weight={sample_weight!r} must hold {n_rows} numbers >= 0, at least one of them positive: one for each row."
        )
    return weight


def _columns(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return finite values of shape (n_rows,) or (n_rows, n_outputs) as (n_rows, n_outputs)."""
    array = check_array(values, ensure_2d=False, dtype=np.float64, input_name=name)
    return np.asarray(array.reshape(len(array), -1))


def _one_component(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return values shaped like y as those of a mixture of one."""
    return _columns(name, values)[None]


def _check_spread(std: NDArray[np.float64]) -> None:
    if (std < 0).any():
        raise ValueError(f"std holds {std.min()}: a standard deviation must be >= 0; a variance or a logarithm is not one.")


def _check_density(std: NDArray[np.float64]) -> None:
    if not std.all():
        raise ValueError("std holds 0: a density needs standard deviations > 0; the CRPS is defined for 0, too.")


def _mixture_arguments(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return targets (n, K), component means and standard deviations (M, n, K), and weights (n,)."""
    y = _columns("y_true", y_true)
    arrays: list[NDArray[np.float64]] = []
    for name, values in (("mean", mean), ("std", std)):
        array = check_array(values, ensure_2d=False, allow_nd=True, dtype=np.float64, input_name=name)
        components = array.reshape(*array.shape[:2], -1) if array.ndim in (2, 3) else array
        if components.shape[1:] != y.shape or (arrays and len(components) != len(arrays[0])):
            raise ValueError(
                f"{name} has shape {array.shape}, which does not fit the targets' {np.shape(y_true)}: mean and std must be "
                "(n_draws, n_rows) or (n_draws, n_rows, n_outputs), as predict_mixture returns them; gaussian_crps and "
                "gaussian_log_loss take arrays shaped like y."
            )
        arrays.append(components)
    _check_spread(arrays[1])
    return y, arrays[0], arrays[1], _weights(sample_weight, len(y))


def _interval_arguments(
    y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return targets and bounds, (n, K)."""
    y, low, high = _columns("y_true", y_true), _columns("lower", lower), _columns("upper", upper)
    if not y.shape == low.shape == high.shape:
        raise ValueError(f"y_true, lower and upper have shapes {y.shape}, {low.shape} and {high.shape}: they must be the same.")
    if (low > high).any():
        row = int(np.argmax((low > high).any(axis=1)))
        raise ValueError(f"lower exceeds upper at row {row}: pass the bounds in the order of predict_interval, lower first.")
    return y, low, high


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
    return proba, match.argmax(axis=1), _weights(sample_weight, len(truth))
