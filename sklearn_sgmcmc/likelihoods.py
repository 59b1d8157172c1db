"""Observation models: what the network's outputs mean.

Each works on outputs (C, K, n) and targets (C, n, columns) and may own a few parameters per chain besides the network's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc._typing import Outputs, PerChain, Rows, Theta
from sklearn_sgmcmc.network import sigmoid, softplus

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
LOG_NOISE_PRIOR_SCALE = 2.0
"""s, in essence the log noise standard deviation of a standardised target, has the prior N(0, 2^2)."""
NOISE_FLOOR = 1e-3
"""Least learned noise standard deviation, as a share of the target's: data without noise would have no posterior."""


@lru_cache(maxsize=64)
def _constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return numbers as a tensor that is copied to the device once, not at every step."""
    with torch.inference_mode(False):  # a prediction may run in that mode, and a later fit take its constant from here
        return torch.tensor(values, dtype=dtype, device=device)


class Likelihood(Protocol):
    """An observation model. Gradients are of -sum_rows weight * log f."""

    @property
    def n_outputs(self) -> int:
        """Outputs that the network must have."""

    @property
    def n_params(self) -> int:
        """Parameters per chain beyond the network's."""

    @property
    def compiled(self) -> tuple[str, int, tuple[float, ...]] | None:
        """Name in ``kernels.LIKELIHOODS``, number of target columns and constants there; None if torch alone has the gradient."""

    @property
    def stiff(self) -> bool:
        """Whether the curvature is not bounded by the inputs alone (a noise level stands in a denominator)."""

    def log_density(self, outputs: Outputs, extra: Theta, target: Rows) -> torch.Tensor:
        """Return log f of each row, shape (C, n)."""

    def gradient(self, outputs: Outputs, extra: Theta, target: Rows, weight: torch.Tensor) -> tuple[Outputs, torch.Tensor]:
        """Return the derivatives by the outputs (C, K, n) and by ``extra`` (C, n_params); weight is (C, n)."""

    def fisher(self, extra: Theta, weight: torch.Tensor) -> torch.Tensor:
        """Return the diagonal of the Fisher information about ``extra``, (C, n_params)."""

    def prior_value(self, extra: Theta) -> PerChain:
        """Return -log prior of ``extra``, shape (C,), float64."""

    def prior_grad(self, extra: Theta) -> Theta:
        """Return its gradient, shape (C, n_params)."""

    def mean(self, outputs: Outputs) -> Outputs:
        """Return the conditional mean of the (encoded) target, (C, n_classes or n_targets, n)."""


class NoExtra:
    """An observation model whose only parameters are the network's."""

    n_params = 0
    stiff = False

    def fisher(self, extra: Theta, weight: torch.Tensor) -> torch.Tensor:
        """Return nothing, (C, 0): there are no parameters."""
        return extra

    def prior_value(self, extra: Theta) -> PerChain:
        """Return zeros: there are no parameters."""
        return torch.zeros(len(extra), dtype=torch.float64, device=extra.device)

    def prior_grad(self, extra: Theta) -> Theta:
        """Return an empty gradient."""
        return extra


@dataclass(frozen=True)
class Categorical(NoExtra):
    """Class probabilities softmax(outputs); targets are one-hot rows.

    Parameters
    ----------
    n_classes : int >= 2
        Number of classes.

    Examples
    --------
    >>> Categorical(3).n_outputs
    3
    """

    n_classes: int

    @property
    def n_outputs(self) -> int:
        """One logit per class."""
        return self.n_classes

    @property
    def compiled(self) -> tuple[str, int, tuple[float, ...]]:
        """No constants."""
        return "categorical", self.n_classes, ()

    def log_density(self, outputs: Outputs, extra: Theta, target: Rows) -> torch.Tensor:
        """Return log p(class) of each row."""
        return (outputs.log_softmax(1) * target.transpose(1, 2)).sum(1)

    def gradient(self, outputs: Outputs, extra: Theta, target: Rows, weight: torch.Tensor) -> tuple[Outputs, torch.Tensor]:
        """Return weight (p - target)."""
        return outputs.softmax(1).sub_(target.transpose(1, 2)).mul_(weight.unsqueeze(1)), extra

    def mean(self, outputs: Outputs) -> Outputs:
        """Return the class probabilities."""
        kernel = kernels.moments() if outputs.is_cpu and outputs.dtype == torch.float64 and not outputs.requires_grad else None
        return outputs.softmax(1) if kernel is None else kernel.softmax(outputs.contiguous())

    def log_mean(self, outputs: Outputs) -> Outputs:
        """Return their logarithms."""
        return outputs.log_softmax(1)


class Gaussian:
    """Base of the observation models with Gaussian noise."""

    stiff = True

    def mean(self, outputs: Outputs) -> Outputs:
        """Return the conditional means (C, n_targets, n)."""
        return outputs

    def noise_sd(self, outputs: Outputs, extra: Theta) -> Outputs:
        """Return the noise standard deviation, broadcastable to (C, n_targets, n), in units of the standardised target."""
        raise NotImplementedError

    def log_density(self, outputs: Outputs, extra: Theta, target: Rows) -> torch.Tensor:
        """Return the log density of each row, summed over targets, (C, n)."""
        sd = self.noise_sd(outputs, extra)
        return (-0.5 * ((target.transpose(1, 2) - self.mean(outputs)) / sd).square() - sd.log() - HALF_LOG_2PI).sum(1)


@dataclass(frozen=True)
class FixedNoise(Gaussian, NoExtra):
    """Known noise: y = f(x) + N(0, sd^2) with known sd, one per target, in units of the standardised target.

    Parameters
    ----------
    sd : tuple of float > 0
        Standard deviations of the noise, one per target, in those of the target.

    Examples
    --------
    >>> FixedNoise((0.1, 0.2)).n_outputs
    2
    """

    sd: tuple[float, ...]

    @property
    def n_outputs(self) -> int:
        """One mean per target."""
        return len(self.sd)

    @property
    def compiled(self) -> tuple[str, int, tuple[float, ...]]:
        """The precisions."""
        return "fixed noise", len(self.sd), tuple(sd**-2 for sd in self.sd)

    def _sd(self, like: torch.Tensor) -> torch.Tensor:
        return _constant(self.sd, like.dtype, like.device)[None, :, None]

    def gradient(self, outputs: Outputs, extra: Theta, target: Rows, weight: torch.Tensor) -> tuple[Outputs, torch.Tensor]:
        """Return weight (f - y) / sd^2."""
        precision = self._sd(outputs).square().reciprocal()
        return (outputs - target.transpose(1, 2)) * (weight.unsqueeze(1) * precision), extra

    def noise_sd(self, outputs: Outputs, extra: Theta) -> Outputs:
        """Return the known sd."""
        return self._sd(outputs)


@dataclass(frozen=True)
class HomoscedasticNoise(Gaussian):
    """One learned noise level per target and chain.

    y = f(x) + N(0, sd^2), sd^2 = exp(2 s) + floor^2 with one learned s per target and chain, s ~ N(0, 2^2).

    Parameters
    ----------
    n_targets : int >= 1
        Number of targets.

    Examples
    --------
    >>> HomoscedasticNoise(2).n_outputs, HomoscedasticNoise(2).n_params
    (2, 2)
    """

    n_targets: int

    @property
    def n_outputs(self) -> int:
        """One mean per target."""
        return self.n_targets

    @property
    def n_params(self) -> int:
        """One s per target."""
        return self.n_targets

    @property
    def compiled(self) -> tuple[str, int, tuple[float, ...]]:
        """The floor."""
        return "homoscedastic", self.n_targets, (NOISE_FLOOR,)

    def gradient(self, outputs: Outputs, extra: Theta, target: Rows, weight: torch.Tensor) -> tuple[Outputs, torch.Tensor]:
        """Return weight (f - y) / sd^2 and sum weight (1 - (f - y)^2 / sd^2) exp(2 s) / sd^2."""
        learned = torch.exp(2.0 * extra)
        precision = 1.0 / (learned + NOISE_FLOOR**2)
        residual = outputs - target.transpose(1, 2)
        by_outputs = residual * (weight.unsqueeze(1) * precision.unsqueeze(2))
        by_s = (weight.unsqueeze(1) - by_outputs * residual).sum(2) * (learned * precision)
        return by_outputs, by_s

    def fisher(self, extra: Theta, weight: torch.Tensor) -> torch.Tensor:
        """Return 2 (exp(2 s) / sd^2)^2 per row: the mean of (1 - (f - y)^2 / sd^2)^2 under the model is 2."""
        learned = torch.exp(2.0 * extra)
        return 2.0 * (learned / (learned + NOISE_FLOOR**2)).square() * weight.sum(1, keepdim=True)

    def prior_value(self, extra: Theta) -> PerChain:
        """Return -log N(s; 0, 2^2)."""
        constant = math.log(LOG_NOISE_PRIOR_SCALE) + HALF_LOG_2PI
        return (0.5 * (extra.double() / LOG_NOISE_PRIOR_SCALE).square() + constant).sum(1)

    def prior_grad(self, extra: Theta) -> Theta:
        """Return s / 2^2."""
        return extra / LOG_NOISE_PRIOR_SCALE**2

    def noise_sd(self, outputs: Outputs, extra: Theta) -> Outputs:
        """Return sqrt(exp(2 s) + floor^2), the same for all rows."""
        return (torch.exp(2.0 * extra) + NOISE_FLOOR**2).sqrt().unsqueeze(2)


@dataclass(frozen=True)
class HeteroscedasticNoise(Gaussian, NoExtra):
    """A noise level for each x.

    y = f(x) + N(0, sd(x)^2), sd(x) = softplus(s(x)) + floor; the network's outputs are (f, s), means first.

    Parameters
    ----------
    n_targets : int >= 1
        Number of targets.

    Examples
    --------
    >>> HeteroscedasticNoise(2).n_outputs, HeteroscedasticNoise(2).n_params
    (4, 0)
    """

    n_targets: int

    @property
    def n_outputs(self) -> int:
        """A mean and a noise output per target."""
        return 2 * self.n_targets

    @property
    def compiled(self) -> tuple[str, int, tuple[float, ...]]:
        """The floor."""
        return "heteroscedastic", self.n_targets, (NOISE_FLOOR,)

    def gradient(self, outputs: Outputs, extra: Theta, target: Rows, weight: torch.Tensor) -> tuple[Outputs, torch.Tensor]:
        """Return weight (f - y) / sd^2 and weight (1 - (f - y)^2 / sd^2) / sd * sigmoid(s), stacked."""
        mean, raw = outputs.chunk(2, dim=1)
        inverse_sd = self.noise_sd(outputs, extra).reciprocal()
        standardised = (mean - target.transpose(1, 2)) * inverse_sd
        weighted = weight.unsqueeze(1) * inverse_sd
        by_mean = weighted * standardised
        by_raw = weighted * (1.0 - standardised.square()) * sigmoid(raw)
        return torch.cat([by_mean, by_raw], dim=1), extra

    def mean(self, outputs: Outputs) -> Outputs:
        """Return f."""
        return outputs[:, : self.n_targets]

    def noise_sd(self, outputs: Outputs, extra: Theta) -> Outputs:
        """Return softplus(s) + floor."""
        return softplus(outputs[:, self.n_targets :]) + NOISE_FLOOR

    @staticmethod
    def raw_from_sd(sd: torch.Tensor) -> torch.Tensor:
        """Return s with softplus(s) + floor = sd (values below twice the floor are raised to it)."""
        excess = (sd - NOISE_FLOOR).clamp_min(NOISE_FLOOR)
        return excess + torch.log(-torch.expm1(-excess))
