"""The classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Bunch, column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from sklearn_sgmcmc._checks import check_flag
from sklearn_sgmcmc.estimators._base import Matrix, Targets
from sklearn_sgmcmc.estimators._docs import shared_docs
from sklearn_sgmcmc.estimators._fitted import cast_finite
from sklearn_sgmcmc.estimators._inputs import check_labels
from sklearn_sgmcmc.estimators._review import Quantity, cold_prior_message
from sklearn_sgmcmc.estimators._rows import TrainingRows
from sklearn_sgmcmc.estimators._settings import Settings
from sklearn_sgmcmc.estimators._streaming import StreamingMLP, takes_chunks
from sklearn_sgmcmc.likelihoods import Categorical, Likelihood
from sklearn_sgmcmc.predictive import over_rows
from sklearn_sgmcmc.priors import Prior
from sklearn_sgmcmc.samplers.drift import MSGLD


@shared_docs
@dataclass(eq=False, repr=False, kw_only=True)
class BayesianMLPClassifier(ClassifierMixin, StreamingMLP):  # type: ignore[misc]  # scikit-learn is untyped
    """Bayesian multilayer perceptron for classification, sampled by stochastic-gradient MCMC.

    The weights have the posterior exp(-U), U = -log prior - sum_n w_n log softmax(f(x_n))[y_n]; class probabilities are averaged
    over draws from it.

    Parameters
    ----------
    <shared parameters>
    class_weight : dict, "balanced" or None, default None
        Multiplies the weight of each row by its class's; "balanced" gives every class the same total weight.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    <shared attributes>

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((10,), sampler="msgld", random_state=0).fit(X, y)
    >>> proba, std = model.predict_proba(X[:2], return_std=True)
    >>> proba.shape, std.shape
    ((2, 3), (2, 3))
    """

    prior: str | Prior = "fan_in_normal"
    class_weight: dict[Any, float] | str | None = None

    _automatic = MSGLD()
    _least_warm_up = (500, 500)

    @available_if(takes_chunks)  # type: ignore[untyped-decorator]
    @shared_docs
    def partial_fit(
        self,
        X: Matrix,
        y: Targets,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        n_total: float | None = None,
    ) -> Self:
        """Take the chains on over one chunk of rows: a step per chunk, or per ``batch_size`` rows of it.

        <laws>

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            The rows of a chunk; finite.
        y : array of shape (n_rows,)
            Their classes, not all of which have to be there.
        classes : array of shape (n_classes,), optional
            All classes that may come; needed in the first call.
        <shared arguments>
        """
        return self._partial_fit(X, y, classes, sample_weight, n_total)

    def _encode(self, y: NDArray[Any]) -> NDArray[np.uint8]:
        """Return one-hot rows."""
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        return np.eye(len(self.classes_), dtype=np.uint8)[index]

    def _encode_chunk(self, y: NDArray[Any], classes: ArrayLike | None, *, first: bool) -> NDArray[np.uint8]:
        """Return one-hot rows of the classes of the first call."""
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs the classes of all rows, and partial_fit sees one chunk: give a dict."
            )
        if first and classes is None:
            raise ValueError("classes=None: the first call of partial_fit must name all classes that may come; pass classes=[...].")
        if classes is not None:
            given = _distinct(classes)
            if not first and not np.array_equal(given, self.classes_):
                raise ValueError(f"classes={given.tolist()} were {self.classes_.tolist()} in the first call; leave classes=None.")
            self.classes_ = given
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y has classes {unknown.tolist()} that are not among {self.classes_.tolist()}, those of the first call: "
                "name all of them there."
            )
        return np.eye(len(self.classes_), dtype=np.uint8)[np.searchsorted(self.classes_, y)]

    def _model_message(self, settings: Settings, rows: TrainingRows) -> str | None:
        """Return what to say if the temperature draws the weights to the mode of a hierarchical prior."""
        return cold_prior_message(settings, self.effective_temperature_)

    def _weights(self, X: Any, y: NDArray[Any], sample_weight: ArrayLike | None) -> NDArray[np.float64]:
        """Return sample weights times class weights."""
        weight = super()._weights(X, y, sample_weight)
        if self.class_weight is None:
            return weight
        index = np.searchsorted(self.classes_, column_or_1d(y))
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            totals = np.bincount(index, weight, len(self.classes_))
            by_class = weight.sum() / (np.count_nonzero(totals) * np.where(totals > 0, totals, np.inf))
        else:
            try:
                by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=column_or_1d(y))
            except (TypeError, ValueError) as error:
                rule = "a dict of one weight >= 0 for each class, 'balanced' or None"
                raise ValueError(f"class_weight={self.class_weight!r} must be {rule}: {error}") from None
        if not (np.isfinite(by_class) & (by_class >= 0)).all() or not (weight * by_class[index]).any():
            raise ValueError(
                f"class_weight={self.class_weight!r} must be finite and >= 0, and leave at least one row a positive weight; "
                "'balanced' or None always do."
            )
        return super()._weights(X, y, weight * by_class[index])

    def _observe(
        self, rows: TrainingRows, n_data: float, hidden: tuple[int, ...], before: Likelihood | None
    ) -> tuple[NDArray[Any], Likelihood]:
        return rows.target, Categorical(len(self.classes_))

    def _quantities(self) -> list[Quantity]:
        """Return the class probabilities; the last class's follows from the others."""
        labels = self.classes_[:-1].tolist()
        return [Quantity("probability", "class", labels, True, lambda outputs, extra: self._probabilities(outputs, extra)[:, :-1])]

    def predict_proba(
        self, X: Matrix, return_std: bool = False
    ) -> NDArray[np.floating] | tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the posterior mean of the class probabilities.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.
        return_std : bool, default False
            Whether to return the standard deviation over draws as well.

        Returns
        -------
        proba : ndarray of shape (n_rows, n_classes)
            Columns in the order of ``classes_``; rows sum to 1.
        std : ndarray of shape (n_rows, n_classes)
            Standard deviation over draws; only if ``return_std``.
        """
        X = self._inputs(X)
        return_std = check_flag("return_std", return_std)
        ensemble = self._ensemble()

        def moments(rows: slice) -> tuple[NDArray[np.floating], ...]:
            mean, variance = self._moments(ensemble, X, self._probabilities, rows)
            proba = (mean / mean.sum(axis=1, keepdims=True)).astype(X.dtype)
            return (proba, np.sqrt(variance).astype(X.dtype)) if return_std else (proba,)

        found = over_rows(X.shape[0], moments)
        return (found[0], found[1]) if return_std else found[0]

    def predict_log_proba(self, X: Matrix) -> NDArray[np.floating]:
        """Return the logarithm of the posterior mean probabilities, by log-mean-exp over draws.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.

        Returns
        -------
        log_proba : ndarray of shape (n_rows, n_classes)
            In nats, columns in the order of ``classes_``.
        """
        X = self._inputs(X)
        ensemble = self._ensemble()

        def log_proba(rows: slice) -> tuple[NDArray[np.floating]]:
            return (cast_finite(ensemble.log_mean_exp(self._scaled(X, rows), self._log_probabilities), X.dtype),)

        return over_rows(X.shape[0], log_proba)[0]

    def predict(self, X: Matrix) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.

        Returns
        -------
        label : ndarray of shape (n_rows,)
            One of ``classes_`` for each row.
        """
        proba = np.asarray(self.predict_proba(X))
        return np.asarray(self.classes_[proba.argmax(axis=1)])

    def sample_posterior(
        self, X: Matrix, n_draws: int | None = None, random_state: int | np.random.RandomState | None = None
    ) -> NDArray[np.floating]:
        """Return the class probabilities at single draws: the same weights for all rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.
        n_draws : int or None, default None
            None returns all stored draws in (draw, chain) order; otherwise a random subset without replacement.
        random_state : int, RandomState or None
            Chooses the subset.

        Returns
        -------
        proba : ndarray of shape (n_draws, n_rows, n_classes)
            Their mean over all draws is ``predict_proba``.
        """
        X = self._inputs(X)
        ensemble = self._some_draws(n_draws, random_state)

        def proba(rows: slice) -> tuple[NDArray[np.floating]]:
            return (self._values(ensemble, X, self._probabilities, rows).astype(X.dtype),)

        return over_rows(X.shape[0], proba, axis=1, per_row=len(ensemble.draws) * len(self.classes_))[0]

    def predict_uncertainty(self, X: Matrix) -> Bunch:
        """Split the uncertainty of each row's class, in nats.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.

        Returns
        -------
        bunch : Bunch of ndarrays of shape (n_rows,)
            ``total``, the entropy of ``predict_proba``; ``aleatoric``, the mean entropy of the draws; ``epistemic``, their
            difference: the mutual information of class and weights.
        """
        X = self._inputs(X)
        ensemble = self._ensemble()

        def with_entropy(outputs: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
            proba = self._probabilities(outputs, extra)
            return torch.cat([proba, torch.special.entr(proba).sum(dim=1, keepdim=True)], dim=1)

        def split(rows: slice) -> tuple[NDArray[np.float64], ...]:
            mean, _ = self._moments(ensemble, X, with_entropy, rows)
            proba, aleatoric = mean[:, :-1], mean[:, -1]
            total = -(proba * np.log(np.maximum(proba, np.finfo(np.float64).tiny))).sum(axis=1)
            return total, aleatoric, total - aleatoric

        return Bunch(**dict(zip(("total", "aleatoric", "epistemic"), over_rows(X.shape[0], split), strict=True)))

    def _log_probabilities(self, outputs: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
        return cast(Categorical, self._likelihood).log_mean(outputs.double())

    def _probabilities(self, outputs: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
        return self._likelihood.mean(outputs.double())


def _distinct(classes: ArrayLike) -> NDArray[Any]:
    """Return the labels that a caller of ``partial_fit`` names, sorted."""
    given = np.asarray(classes)
    if given.ndim == 1:
        check_labels("classes", given)
    if given.ndim != 1 or given.size == 0 or (given != given).any():
        raise ValueError(f"classes={classes!r} must be a list of all labels, none of them NaN; np.unique(y) of all rows, say.")
    return np.unique(given)
