"""Priors of the network's weights and biases, on the scale of standardised inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sklearn_sgmcmc._parameters import Parameters
from sklearn_sgmcmc._typing import Coefficient, PerChain, Theta


@dataclass(eq=False)
class Prior(Parameters):
    """Base of all priors."""

    @property
    def initial_scale(self) -> float:
        """Largest standard deviation of a random initial weight."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""

    def grad(self, theta: Theta) -> Theta:
        """Return the gradient of -log prior, shape (C, P)."""
        raise NotImplementedError

    def value(self, theta: Theta) -> PerChain:
        """Return -log prior in nats, summed in float64, shape (C,)."""
        raise NotImplementedError


@dataclass(eq=False)
class Normal(Prior):
    """Independent N(0, scale^2) on every weight and bias.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6, default 1
        Standard deviation, in units of a weight between standardised quantities; a float or one value per chain (C, 1).
    """

    scale: Coefficient = 1.0

    @property
    def initial_scale(self) -> float:
        """Return the (largest) scale."""
        return float(torch.as_tensor(self.scale).max())

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("scale", "a number between 1e-6 and 1e6", lambda scale: (scale >= 1e-6) & (scale <= 1e6))

    def grad(self, theta: Theta) -> Theta:
        """Return theta / scale^2."""
        return theta * _as(1.0 / (self.scale * self.scale), theta)

    def value(self, theta: Theta) -> PerChain:
        """Return sum theta^2 / (2 scale^2) + P log(scale sqrt(2 pi))."""
        scale = torch.as_tensor(self.scale, dtype=torch.float64, device=theta.device)
        standardised = theta.double() / scale
        constant = scale.log() + 0.5 * math.log(2.0 * math.pi)
        return (0.5 * standardised.square() + constant).sum(1)


PRIORS: dict[str, type[Prior]] = {"normal": Normal}


def _as(coefficient: Coefficient, theta: Theta) -> Coefficient:
    """Return a coefficient in the dtype of ``theta``."""
    return coefficient.to(theta.dtype) if isinstance(coefficient, torch.Tensor) else coefficient
