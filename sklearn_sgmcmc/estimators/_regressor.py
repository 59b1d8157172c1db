"""The regressor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from sklearn_sgmcmc._checks import check_flag, check_real
from sklearn_sgmcmc.estimators._docs import shared_docs
from sklearn_sgmcmc.estimators._mixture import MixturePredictions
from sklearn_sgmcmc.estimators._review import Quantity, cold_prior_message
from sklearn_sgmcmc.estimators._rows import TrainingRows, column_scaling
from sklearn_sgmcmc.estimators._settings import Settings
from sklearn_sgmcmc.estimators._streaming import StreamingMLP
from sklearn_sgmcmc.likelihoods import FixedNoise, Gaussian, HeteroscedasticNoise, HomoscedasticNoise, Likelihood
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.samplers.kinetic import SGHMC

LEARNED_NOISE: dict[str, type[HomoscedasticNoise | HeteroscedasticNoise]] = {
    "homoscedastic": HomoscedasticNoise,
    "heteroscedastic": HeteroscedasticNoise,
}
HETEROSCEDASTIC_ROWS = 0.25
"""noise="auto": rows per parameter from which a noise level for each x is learned."""

LEAST_NOISE = 1e-6
"""Least known noise, and the inverse of the largest, in standard deviations of y: beyond, float32 cannot hold the curvature."""

LOUD = 1.25
"""Learned noise beyond this many standard deviations of y is a failure of the chains: the mean of y alone leaves 1."""
NOTHING_LEARNED = 0.95
"""Learned noise in standard deviations of y beyond which the network has learned nothing."""
VANISHED = 0.05
"""Learned noise in standard deviations of y below which a tempered posterior may have learned its rows by heart."""
LEAST_DATA = 10
"""Total weight from which the posterior of the noise is not mostly prior."""


@shared_docs
@dataclass(eq=False, repr=False, kw_only=True)
class BayesianMLPRegressor(RegressorMixin, MixturePredictions, StreamingMLP):  # type: ignore[misc]  # scikit-learn is untyped
    """Bayesian multilayer perceptron for regression with Gaussian noise, sampled by stochastic-gradient MCMC.

    The weights have the posterior exp(-U), U = -log prior - sum_n w_n log N(y_n; f(x_n), sd^2); the predictive distribution is the
    mixture over draws of N(f(x), sd^2), in the units of y.

    Parameters
    ----------
    <shared parameters>
    noise : "auto", "heteroscedastic", "homoscedastic" or float > 0, default "auto"
        A noise level that depends on x (one learned level in the warm-up and the first half of the burn-in); one per output; or a
        known standard deviation in the units of y. "auto" is "heteroscedastic", and "homoscedastic" below a quarter of a row
        (of total weight) per parameter of the network: so few rows say nothing of how their noise differs.
    normalize_y : bool, default True
        Whether targets are centred and divided by their training standard deviation; predictions come back in y's units.

    Attributes
    ----------
    n_outputs_ : int
        Number of targets.
    noise_ : str or float
        The noise model: what "auto" stood for, or ``noise``.
    <shared attributes>

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn_sgmcmc import BayesianMLPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianMLPRegressor((10,), random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:2], return_std=True)
    >>> lower, upper = model.predict_interval(X[:2], coverage=0.9)
    >>> bool((lower < mean).all() and (mean < upper).all())
    True
    """

    noise: float | str = "auto"
    normalize_y: bool = True

    _automatic = SGHMC()
    _steps_per_row = 15
    _y_numeric = True
    _full_batch_rows = 2500  # a single outlying row in a minibatch kicks a learned noise level

    def _encode_chunk(self, y: NDArray[Any], classes: ArrayLike | None, *, first: bool) -> NDArray[np.float64]:
        """Return the targets as columns, as many as in the first call."""
        known = None if first else (self.n_outputs_, self._y_ndim)
        columns = self._encode(y)
        if known is not None and known != (self.n_outputs_, self._y_ndim):
            raise ValueError(
                f"y has shape {y.shape}, and {known[1]} axes with {known[0]} targets before; keep the shape of its rows."
            )
        return columns

    def _encode(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the targets as columns."""
        check_flag("normalize_y", self.normalize_y)
        self._y_ndim = y.ndim
        columns = y.astype(np.float64).reshape(len(y), -1)
        self.n_outputs_ = columns.shape[1]
        return columns

    def _learn_scales(self, rows: TrainingRows) -> None:
        super()._learn_scales(rows)
        self._y_scaling = column_scaling(rows.target, rows.weight, enabled=self.normalize_y)

    def _observe(
        self, rows: TrainingRows, n_data: float, hidden: tuple[int, ...], before: Likelihood | None
    ) -> tuple[NDArray[np.float64], Likelihood]:
        self._y_scaling.apply(rows.target, np.dtype(self.dtype), "y", "normalize_y")  # raises if the chains could not hold it
        network = MLP((rows.x.shape[1], *hidden, 2 * self.n_outputs_), self.activation)
        likelihood = self._noise_model(n_data / network.n_params, before)
        return self._y_scaling.apply(rows.target, np.float64, "y", "normalize_y"), likelihood

    def _noise_model(self, rows_per_parameter: float, before: Likelihood | None) -> Likelihood:
        """Return the likelihood; chains that go on keep what "auto" stood for."""
        if isinstance(self.noise, str):
            if self.noise not in ("auto", *LEARNED_NOISE):
                known = ", ".join(map(repr, ("auto", *LEARNED_NOISE)))
                raise ValueError(f"noise={self.noise!r} is not known; choose {known} or a standard deviation > 0.")
            name = self.noise
            if name == "auto":
                kept = [name for name, kind in LEARNED_NOISE.items() if isinstance(before, kind)]
                name = kept[0] if kept else "heteroscedastic" if rows_per_parameter >= HETEROSCEDASTIC_ROWS else "homoscedastic"
            self.noise_: str | float = name
            return LEARNED_NOISE[name](self.n_outputs_)
        fix = "'homoscedastic' learns it"
        sd = check_real("noise", self.noise, rule="a standard deviation > 0 in the units of y", fix=fix, open_low=True)
        with np.errstate(over="ignore"):
            relative = sd / self._y_scaling.scale
        if not ((relative >= LEAST_NOISE) & (relative <= 1 / LEAST_NOISE)).all():
            raise ValueError(
                f"noise={self.noise!r} must lie between {LEAST_NOISE:g} and {1 / LEAST_NOISE:g} standard deviations of y; {fix}."
            )
        self.noise_ = sd
        return FixedNoise(tuple(relative.tolist()))

    def _model_message(self, settings: Settings, rows: TrainingRows) -> str | None:
        """Return what to say of learned noise beyond the spread of the targets, or as large or almost 0 below temperature 1."""
        known = isinstance(self._likelihood, FixedNoise) or rows.n_data < LEAST_DATA
        if known or not (self._y_scaling.scale.any() and self.normalize_y):
            return None
        some = slice(0, min(256, rows.n_rows))
        noise = np.sqrt(self._mean_and_variances(self._ensemble(), rows.x, some)[2].mean(axis=0))
        if (noise > LOUD).any():
            longer = "a larger max_iter or warm_up" if rows.full_batch else "a smaller learning_rate, larger batches"
            return (
                f"The learned noise is {noise.max():.3g} times the standard deviation of y: the run is too short, or outlying "
                f"rows have thrown the chains off. Use {longer}, or transform y."
            )
        temperature = self.effective_temperature_
        if (noise > NOTHING_LEARNED).any():
            return cold_prior_message(settings, temperature)
        if temperature is None or not 0 < temperature < 1 or noise.min() >= VANISHED:
            return None
        return (
            f"The learned noise is {noise.min():.1g} standard deviations of y at effective temperature {temperature:.3g}: below 1 "
            "a network is drawn to rows learned by heart, and the noise level vanishes with their residuals, so that intervals may "
            f"be far too narrow. Use temperature={settings.temperature / temperature:.3g}, the posterior itself, or a known noise."
        )

    def _quantities(self) -> list[Quantity]:
        """Return the log noise level, where it is learned, and the conditional mean."""
        center, unit = (torch.from_numpy(part)[:, None] for part in self._y_scaling)
        outputs_ = list(range(self.n_outputs_))
        likelihood = cast(Gaussian, self._likelihood)

        def mean(outputs: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
            return likelihood.mean(outputs).double() * unit + center

        def log_noise(outputs: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
            return likelihood.noise_sd(outputs, extra).double().log() + unit.log()

        found = [Quantity("mean", "output", outputs_, True, mean)]
        if isinstance(likelihood, FixedNoise):
            return found
        return [Quantity("log_noise_sd", "output", outputs_, isinstance(likelihood, HeteroscedasticNoise), log_noise), *found]

    def __sklearn_tags__(self) -> Any:
        """Accept several outputs."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
