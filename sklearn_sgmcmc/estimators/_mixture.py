"""What a fitted regressor predicts: the mixture of Gaussians over its draws, and what can be said of it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch, check_consistent_length

from sklearn_sgmcmc._checks import check_flag, check_integer, check_real
from sklearn_sgmcmc.batches import Scaling
from sklearn_sgmcmc.estimators._base import Matrix, Targets
from sklearn_sgmcmc.estimators._fitted import FittedMLP, cast_finite
from sklearn_sgmcmc.estimators._inputs import check_array, generator
from sklearn_sgmcmc.likelihoods import Gaussian, Likelihood
from sklearn_sgmcmc.predictive import Ensemble, mixture_log_density, mixture_quantile, over_rows


class MixturePredictions(FittedMLP):
    """Predictions in the units of y: ``_y_scaling`` is that of the targets, ``_y_ndim`` their number of axes in ``fit``."""

    n_outputs_: int
    _likelihood: Likelihood
    _y_scaling: Scaling
    _y_ndim: int

    def predict(
        self, X: Matrix, return_std: bool = False
    ) -> NDArray[np.floating] | tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the posterior predictive mean.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.
        return_std : bool, default False
            Whether to return the predictive standard deviation (weights and noise together) as well.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the units of y.
        std : ndarray of the same shape
            In the units of y; only if ``return_std``.
        """
        X = self._inputs(X)
        return_std = check_flag("return_std", return_std)
        ensemble = self._ensemble()

        def moments(rows: slice) -> tuple[NDArray[np.floating], ...]:
            mean, epistemic, aleatoric = self._mean_and_variances(ensemble, X, rows)
            prediction = self._output(mean, X, self._y_scaling.mean)
            return (prediction, self._output(np.sqrt(epistemic + aleatoric), X)) if return_std else (prediction,)

        found = over_rows(X.shape[0], moments)
        return (found[0], found[1]) if return_std else found[0]

    def predict_noise(self, X: Matrix) -> NDArray[np.floating]:
        """Return the standard deviation of the noise at each row: the root of its mean variance over draws.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.

        Returns
        -------
        std : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the units of y.
        """
        X = self._inputs(X)
        ensemble = self._ensemble()

        def noise(rows: slice) -> tuple[NDArray[np.floating]]:
            return (self._output(np.sqrt(self._mean_and_variances(ensemble, X, rows)[2]), X),)

        return over_rows(X.shape[0], noise)[0]

    def predict_uncertainty(self, X: Matrix) -> Bunch:
        """Split the predictive variance of each row, in squared units of y.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.

        Returns
        -------
        bunch : Bunch of ndarrays shaped like ``predict``
            ``total``; ``aleatoric``, the mean noise variance; ``epistemic``, the variance of the mean over draws (ddof 0).
        """
        X = self._inputs(X)
        if (self._y_scaling.scale < np.sqrt(np.finfo(np.float64).tiny)).any():
            raise ValueError(
                f"y has the standard deviation {self._y_scaling.scale.min():.3g}, whose square underflows float64: give y in a "
                "smaller unit, or use predict(X, return_std=True)."
            )

        ensemble = self._ensemble()

        def split(rows: slice) -> tuple[NDArray[np.floating], ...]:
            _, epistemic, aleatoric = self._mean_and_variances(ensemble, X, rows)
            with np.errstate(over="ignore", invalid="ignore"):
                found = [part * self._y_scaling.scale**2 for part in (epistemic + aleatoric, aleatoric, epistemic)]
            return tuple(cast_finite(self._shaped(part), np.float64) for part in found)

        return Bunch(**dict(zip(("total", "aleatoric", "epistemic"), over_rows(X.shape[0], split), strict=True)))

    def sample_posterior(
        self, X: Matrix, n_draws: int | None = None, random_state: int | np.random.RandomState | None = None
    ) -> NDArray[np.floating]:
        """Return the conditional mean at single draws, without noise: the same weights for all rows.

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
        mean : ndarray of shape (n_draws, n_rows) or (n_draws, n_rows, n_outputs)
            In the units of y; their mean over all draws is ``predict``.
        """
        X = self._inputs(X)
        ensemble = self._some_draws(n_draws, random_state)

        def mean(rows: slice) -> tuple[NDArray[np.floating]]:
            values = self._values(ensemble, X, lambda outputs, extra: self._likelihood.mean(outputs), rows)
            return (self._output(values, X, self._y_scaling.mean),)

        return over_rows(X.shape[0], mean, axis=1, per_row=len(ensemble.draws) * self.n_outputs_)[0]

    def predict_mixture(self, X: Matrix) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the predictive distribution itself: an equal mixture of one Gaussian per stored draw.

        p(y | x) = (1 / M) sum_m N(y; mean_m(x), std_m(x)^2), the M stored draws in (draw, chain) order; outputs are independent
        given the draw. Memory grows with draws times rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.

        Returns
        -------
        mean, std : ndarrays of shape (n_draws, n_rows) or (n_draws, n_rows, n_outputs)
            Conditional mean and standard deviation of the noise at each draw, in the units of y.
        """
        X = self._inputs(X)
        ensemble = self._ensemble()

        def mixture(rows: slice) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
            mean, sd = self._components(ensemble, X, rows)
            return self._output(mean, X, self._y_scaling.mean), self._output(sd, X)

        mean, std = over_rows(X.shape[0], mixture, axis=1, per_row=self._numbers(ensemble))
        return mean, std

    def sample_y(self, X: Matrix, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0) -> NDArray[np.floating]:
        """Return samples from the predictive distribution, noise included.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.
        n_samples : int >= 1, default 1
            Samples for each row.
        random_state : int, RandomState or None, default 0
            Chooses draws and noise.

        Returns
        -------
        samples : ndarray of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
            In the units of y. Column s uses one stored draw, chosen at random, for all rows.
        """
        X = self._inputs(X)
        n_samples = check_integer("n_samples", n_samples, low=1, fix="1 is the default")
        random = generator(random_state)
        ensemble = self._ensemble()
        ensemble = ensemble.subset(random.choice(len(ensemble.draws), size=n_samples))

        def sample(rows: slice) -> tuple[NDArray[np.floating]]:
            mean, sd = self._components(ensemble, X, rows)
            samples = mean + sd * random.standard_normal(mean.shape)
            return (np.moveaxis(self._output(samples, X, self._y_scaling.mean), 0, -1),)

        return over_rows(X.shape[0], sample, per_row=self._numbers(ensemble))[0]

    def predict_quantiles(self, X: Matrix, quantiles: ArrayLike) -> NDArray[np.floating]:
        """Return quantiles of the predictive mixture, noise included.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.
        quantiles : array of shape (n_quantiles,)
            Levels, each strictly between 0 and 1.

        Returns
        -------
        values : ndarray of shape (n_quantiles, n_rows) or (n_quantiles, n_rows, n_outputs)
            In the units of y.

        Raises
        ------
        ValueError
            If a level does not lie strictly between 0 and 1.
        """
        X = self._inputs(X)
        try:
            levels = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
        except (TypeError, ValueError):
            levels = np.array([])
        if levels.ndim != 1 or levels.size == 0 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantiles={quantiles!r} must be numbers strictly between 0 and 1, e.g. [0.05, 0.5, 0.95].")
        ensemble = self._ensemble()

        def values(rows: slice) -> tuple[NDArray[np.floating]]:
            components = self._components(ensemble, X, rows)
            found = np.stack([mixture_quantile(*components, level) for level in levels.tolist()])
            found[np.argsort(levels)] = np.sort(found, axis=0)  # in spite of rounding, where all lie within a few last digits
            return (self._output(found, X, self._y_scaling.mean),)

        return over_rows(X.shape[0], values, axis=1, per_row=self._numbers(ensemble))[0]

    def predict_interval(self, X: Matrix, coverage: float = 0.9) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the central predictive interval that holds a new target with probability ``coverage``.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.
        coverage : float in (0, 1), default 0.9
            Probability of the interval; (1 - coverage) / 2 lies on either side.

        Returns
        -------
        lower, upper : ndarrays shaped like ``predict``
            In the units of y.

        Raises
        ------
        ValueError
            If ``coverage`` does not lie strictly between 0 and 1.
        """
        rule, largest = "a probability strictly between 0 and 1", 1.0 - np.finfo(np.float64).eps  # beyond, 0.5 + coverage / 2 is 1
        coverage = check_real("coverage", coverage, rule=rule, fix="0.9 is the default", high=largest, open_low=True)
        lower, upper = self.predict_quantiles(X, [0.5 - coverage / 2, 0.5 + coverage / 2])
        return lower, upper

    def log_predictive_density(self, X: Matrix, y: Targets) -> NDArray[np.float64]:
        """Return the log density of targets under the predictive mixture over draws, in nats per row and the units of y.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Inputs, with the columns of ``fit``.
        y : array of shape (n_rows,) or (n_rows, n_outputs)
            Targets; outputs are independent given the weights.

        Returns
        -------
        log_density : ndarray of shape (n_rows,)
            In nats; the scale of y is accounted for.

        Raises
        ------
        ValueError
            If y has other outputs than in ``fit``, or lies so far away that its density is 0 in float64.
        """
        X = self._inputs(X)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(X, y)
        y = y.reshape(len(y), -1)
        if y.shape[1] != self.n_outputs_:
            raise ValueError(f"y has {y.shape[1]} columns, and the model was fitted on {self.n_outputs_}; give the same outputs.")
        target = self._y_scaling.apply(y, np.float64, "y", "normalize_y")
        ensemble = self._ensemble()
        jacobian = np.log(self._y_scaling.scale).sum()

        def log_density(rows: slice) -> tuple[NDArray[np.float64]]:
            mean, sd = self._components(ensemble, X, rows)
            return (mixture_log_density(target[rows], mean, sd) - jacobian,)

        found = over_rows(X.shape[0], log_density, per_row=self._numbers(ensemble))[0]
        if not np.isfinite(found).all():
            row = int(np.argmin(np.isfinite(found)))
            raise ValueError(
                f"y={y[row].tolist()} at row {row} is so far from its prediction that the log density overflows float64: "
                "give y in the units of fit."
            )
        return found

    def _mean_and_sd(self, outputs: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
        """Return the conditional mean and noise sd of the standardised targets, stacked: (D, 2 targets, n)."""
        likelihood = cast(Gaussian, self._likelihood)
        mean = likelihood.mean(outputs)
        return torch.cat([mean, likelihood.noise_sd(outputs, extra).expand(mean.shape)], dim=1)

    def _components(self, ensemble: Ensemble, X: Any, rows: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the conditional mean and noise sd of the standardised targets at every draw, (M, n, n_outputs) each."""
        mean, sd = np.split(self._values(ensemble, X, self._mean_and_sd, rows), 2, axis=2)
        return mean, sd

    def _numbers(self, ensemble: Ensemble) -> int:
        """Return how many numbers of a row ``_components`` holds."""
        return 2 * len(ensemble.draws) * self.n_outputs_

    def _mean_and_variances(
        self, ensemble: Ensemble, X: Any, rows: slice
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean, the variance of the mean over draws and the mean noise variance, (n, n_outputs), standardised."""

        def statistic(outputs: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
            mean, sd = self._mean_and_sd(outputs, extra).double().chunk(2, dim=1)
            return torch.cat([mean, sd.square()], dim=1)

        both, variance = self._moments(ensemble, X, statistic, rows)
        mean, noise = np.split(both, 2, axis=1)
        return mean, variance[:, : self.n_outputs_], noise

    def _shaped(self, values: NDArray[Any]) -> NDArray[Any]:
        """Drop the output axis of (..., n_outputs) if the model was fitted on a 1-d y."""
        return values[..., 0] if self._y_ndim == 1 else values

    def _output(self, standardised: NDArray[np.float64], X: Any, center: NDArray[np.float64] | float = 0.0) -> NDArray[np.floating]:
        """Return standardised values (..., n_outputs) in the units and shape of y, around ``center``, and in the dtype of X."""
        with np.errstate(over="ignore"):
            values = standardised * self._y_scaling.scale + center
        return cast_finite(self._shaped(values), X.dtype)
