"""Overdamped Langevin dynamics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, accumulate, add_scaled, check_noise_correction, not_negative, sqrt


class LangevinState(NamedTuple):
    """The parameters are the whole state."""

    theta: Theta


def langevin_move(theta: Theta, drift: Theta, noise: Noise, control: Control, gradient_noise: Coefficient = 0.0) -> Theta:
    """Return theta - eps drift + N(0, 2 eps tau - eps^2 V), V the ``gradient_noise`` variance."""
    eps, tau = control.step_size, control.temperature
    moved = add_scaled(theta, -eps, drift)
    return accumulate(moved, sqrt(2.0 * eps * tau - eps * eps * gradient_noise), noise(theta))


@dataclass(eq=False)
class SGLD(Sampler):
    """Stochastic gradient Langevin dynamics.

    theta <- theta - eps g + N(0, 2 eps tau - eps^2 V),   g the stochastic gradient of U (full data scale).

    On U = lambda theta^2 / 2 with gradient noise of variance s2 the law is exact: variance
    (2 tau + eps (s2 - V)) / (lambda (2 - h)), h = eps lambda, stable for 0 < h < 2. The bias is O(eps).

    Source: Welling & Teh 2011, equation 4, with their step e = 2 eps and the temperature tau added (theirs is 1); V: Ahn,
    Korattikara & Welling 2012, section 4.

    Parameters
    ----------
    gradient_noise_variance : float >= 0, default 0
        V, the known variance of the stochastic gradient per coordinate, in nats^2; it needs independent batches and
        eps V <= 2 tau.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import SGLD
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=SGLD(), step_size=0.1, n_steps=500)
    >>> abs(float(draws.values.var()) - 2 / (2 - 0.1)) < 0.15
    True
    """

    gradient_noise_variance: Coefficient = 0.0

    law: ClassVar[Law] = "small step"
    default_learning_rate: ClassVar[float] = 0.2
    source: ClassVar[str] = "Welling & Teh 2011, eq. 4"
    use: ClassVar[str] = "The baseline: cheap, and slow along flat directions."

    @property
    def needs_independent_batches(self) -> bool:
        """The noise of reshuffled batches cancels over an epoch: subtracting it would be wrong."""
        return bool(torch.as_tensor(self.gradient_noise_variance > 0).any())

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("gradient_noise_variance", "a number >= 0", not_negative)

    def check_run(self, largest_step: Coefficient, least_temperature: Coefficient) -> None:
        """Raise ValueError if the noise of the gradients alone exceeds what may be injected: 2 tau - eps V must stay >= 0."""
        check_noise_correction(self, 2.0, largest_step, least_temperature)

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> LangevinState:
        """Start at ``theta``."""
        return LangevinState(theta)

    def step(self, state: LangevinState, potential: Potential, noise: Noise, control: Control) -> LangevinState:
        """Advance by one step; state.theta (C, P)."""
        g = potential.grad(state.theta)
        return LangevinState(langevin_move(state.theta, g, noise, control, self.gradient_noise_variance))
