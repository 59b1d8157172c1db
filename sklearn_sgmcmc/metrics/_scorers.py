"""Scorers for ``scoring=``, which reach through Pipelines and searches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, gen_batches
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from sklearn_sgmcmc.metrics._averages import row_weights
from sklearn_sgmcmc.metrics._classes import brier_loss, expected_calibration_error
from sklearn_sgmcmc.metrics._distributions import mixture_crps, mixture_log_loss
from sklearn_sgmcmc.metrics._intervals import interval_coverage, interval_score

CHUNK_ROWS = 4096
"""Rows whose mixtures a scorer holds at once."""


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
        weight = row_weights(sample_weight, len(y))
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


OF_CHAINS = ("potential_curve_", "diagnostics")
"""What a transformation of y does not change."""


def unwrap(estimator: Any, X: Any, name: str) -> tuple[Any, Any]:
    """Return the estimator inside Pipelines and fitted searches that has a method or attribute, and X as that estimator sees it.

    ``predict_interval`` is also found behind a TransformedTargetRegressor with a monotone transformation of each output: the
    bounds are transformed back. What is said of chains alone does not depend on the transformation. X of None stays None.

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
        elif isinstance(inner, TransformedTargetRegressor) and name in OF_CHAINS:
            inner = inner.regressor_
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
