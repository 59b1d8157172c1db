"""Overdamped Langevin dynamics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sklearn_sgmcmc._typing import Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, scale, sqrt


class LangevinState(NamedTuple):
    """The parameters are the whole state."""

    theta: Theta


def langevin_move(theta: Theta, drift: Theta, noise: Noise, control: Control) -> Theta:
    """Return theta - eps drift + sqrt(2 eps tau) N(0, I)."""
    eps, tau = control.step_size, control.temperature
    return theta - scale(eps, drift) + scale(sqrt(2.0 * eps * tau), noise(theta))


@dataclass(eq=False)
class SGLD(Sampler):
    """Stochastic gradient Langevin dynamics.

    theta <- theta - eps g + sqrt(2 eps tau) N(0, I),   g the stochastic gradient of U (full data scale).

    On U = lambda theta^2 / 2 with gradient noise of variance s2 the law is exact: variance (2 tau + eps s2) / (lambda (2 - h)),
    h = eps lambda, stable for 0 < h < 2. The bias is O(eps).

    Source: Welling & Teh 2011, equation 4, with their step e = 2 eps and the temperature tau added (theirs is 1).
    """

    law: ClassVar[Law] = "small step"
    default_learning_rate: ClassVar[float] = 0.2
    source: ClassVar[str] = "Welling & Teh 2011, eq. 4"

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> LangevinState:
        """Start at ``theta``."""
        return LangevinState(theta)

    def step(self, state: LangevinState, potential: Potential, noise: Noise, control: Control) -> LangevinState:
        """Advance by one step; state.theta (C, P)."""
        return LangevinState(langevin_move(state.theta, potential.grad(state.theta), noise, control))
