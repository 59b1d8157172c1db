"""Priors with heavier tails than a normal law: many small weights, some large."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sklearn_sgmcmc._typing import Coefficient, PerChain, Theta
from sklearn_sgmcmc.network import Layout
from sklearn_sgmcmc.priors._base import PEAK, Constant, Density, ScalePrior


@dataclass(eq=False)
class Laplace(ScalePrior):
    """Independent double exponentials, density exp(-|w| / b) / (2 b), on every weight and bias: many small weights, some large.

    The gradient sign(w) / b jumps at 0, so that no draw is exactly 0.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        b, in units of a weight between standardised quantities (the standard deviation is b sqrt 2); a tuple as for ``Normal``.
    fan_in : bool or float >= 1, default False
        Whether b is divided by sqrt(n_in) for connection weights, as for ``Normal``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> from sklearn_sgmcmc.priors import Laplace
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), prior=Laplace(scale=0.5), sampler="sgld", max_iter=300, n_draws=20, random_state=0)
    >>> model = model.fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network."""
        return LaplaceDensity(self.placed_scale(layout))


class LaplaceDensity(Density):
    """Independent exp(-|w| / b) / (2 b)."""

    def __init__(self, scale: torch.Tensor) -> None:
        super().__init__(scale)
        self.narrowest_core = PEAK * float(scale.min())
        self._rate = Constant(1.0 / scale)
        self._log_norm = Constant((2.0 * scale).log())

    def grad(self, theta: Theta) -> Theta:
        """Return sign(theta) / b."""
        return theta.sign() * self._rate.like(theta)

    def value(self, theta: Theta) -> PerChain:
        """Return sum |theta| / b + log(2 b)."""
        theta = theta.double()
        return (theta.abs() * self._rate.like(theta) + self._log_norm.like(theta)).sum(1)


@dataclass(eq=False)
class StudentT(ScalePrior):
    """Independent Student t, density proportional to (1 + w^2 / (df s^2)) ** (-(df + 1) / 2): heavy tails leave large weights be.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        s, in units of a weight between standardised quantities; a tuple as for ``Normal``.
    df : float in [0.1, 1e6], default 4
        Degrees of freedom, dimensionless: 1 is the Cauchy law; the variance s^2 df / (df - 2) is finite for df > 2.
    fan_in : bool or float >= 1, default False
        Whether s is divided by sqrt(n_in) for connection weights, as for ``Normal``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> from sklearn_sgmcmc.priors import StudentT
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), prior=StudentT(df=3), sampler="sgld", max_iter=300, n_draws=20, random_state=0)
    >>> model = model.fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    df: Coefficient = 4.0

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        super().check()
        self.check_field("df", "a number in [0.1, 1e6]", lambda df: (df >= 0.1) & (df <= 1e6))

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network."""
        return StudentTDensity(self.placed_scale(layout), self.per_parameter("df", layout))


class StudentTDensity(Density):
    """Independent Student t with scale s and df degrees of freedom."""

    def __init__(self, scale: torch.Tensor, df: torch.Tensor) -> None:
        super().__init__(scale)
        self.narrowest_core = PEAK * float((scale * (df / (df + 1.0)).sqrt()).min())  # the curvature at 0 is (df + 1) / (df s^2)
        self._power = Constant(df + 1.0)
        self._spread = Constant(df * scale * scale)
        self._log_norm = Constant(
            scale.log() + 0.5 * (df * math.pi).log() + torch.lgamma(df / 2.0) - torch.lgamma((df + 1.0) / 2.0)
        )

    def precision(self, theta: Theta) -> torch.Tensor:
        """Return (df + 1) / (df s^2 + theta^2)."""
        return self._power.like(theta) / theta.square().add_(self._spread.like(theta))

    def value(self, theta: Theta) -> PerChain:
        """Return sum (df + 1) / 2 log(1 + theta^2 / (df s^2)) + log of the normalising constant."""
        theta = theta.double()
        tail = torch.log1p(theta.square() / self._spread.like(theta))
        return (0.5 * self._power.like(theta) * tail + self._log_norm.like(theta)).sum(1)
