"""Stochastic gradient Nose-Hoover thermostats: a friction that adapts until the kinetic temperature is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, PerChain, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, add_scaled, ratio, scale, sqrt

RUNAWAY_ADVICE = (
    "the friction ran away above 1: the step is too long, or the noise of the gradients exceeds what a thermostat can absorb "
    "(2 a + eps s2 / tau <= 1 at most); use a smaller learning_rate (step_size), larger batches, or a higher temperature"
)


def is_runaway(friction: torch.Tensor) -> PerChain:
    """Return where the mean friction of a chain exceeds 1 or is NaN: beyond that a thermostat has no equilibrium, (C,)."""
    return ~(friction.mean(dim=1) <= 1.0)


class ThermostatState(NamedTuple):
    """theta and the momentum r (C, P); the friction alpha, (C, 1) for one thermostat per chain, (C, P) for one per parameter."""

    theta: Theta
    momentum: Theta
    friction: torch.Tensor


@dataclass(eq=False)
class SGNHT(Sampler):
    """Stochastic gradient Nose-Hoover thermostat, one per chain, in learning-rate form.

    u <- (1 - alpha) u - eps g + sqrt(2 a eps tau) N(0, I);   theta <- theta + u;   alpha <- alpha + |u|^2 / P - eps tau.

    The state holds r = u / sqrt(eps). alpha starts at a and rises until it has absorbed the noise of the gradients. As P grows it
    ends at the smaller root of alpha (4 - 2 alpha - h) = 4 a + 2 eps s2 / tau, where Var theta = (tau / lambda)(1 - alpha / 2):
    biased at any fixed a, by a / 2 if that is small. The root exists only if 2 a + eps s2 / tau <= (4 - h)^2 / 16. At tau = 0 alpha
    stands still.

    Source: Ding et al. 2014, Algorithm 2, with the temperature tau added (theirs is 1).

    Parameters
    ----------
    noise_level : float > 0, default 0.05
        a, the injected noise and the initial friction per step, dimensionless.
    thermostat_rate : float >= 0 or None, default None
        k in alpha <- alpha + k (|r|^2 / (P tau) - 1). None is eps tau, as published; 0 freezes the friction at a.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import SGNHT
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=SGNHT(), step_size=0.05, n_steps=500)
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    noise_level: Coefficient = 0.05
    thermostat_rate: Coefficient | None = None

    law: ClassVar[Law] = "biased"
    affine = "frozen"
    default_learning_rate: ClassVar[float] = 0.02
    source: ClassVar[str] = "Ding et al. 2014, Algorithm 2"
    use: ClassVar[str] = "Minibatches whose gradient noise is unknown and about the same for all parameters."
    runaway_advice: ClassVar[str] = RUNAWAY_ADVICE

    @property
    def stability_limit(self) -> Coefficient:
        """4 - 2 alpha at the initial friction."""
        return 4.0 - 2.0 * self.noise_level

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field(
            "noise_level", "a number in (0, 0.5), where the thermostat has an equilibrium", lambda a: (a > 0) & (a < 0.5)
        )
        self.check_field("thermostat_rate", "a number >= 0, or None", lambda k: True if k is None else k >= 0)

    def runaway(self, state: ThermostatState) -> PerChain:
        """Return where the mean friction exceeds 1."""
        return is_runaway(state.friction)

    def gradient_noise_gain(self, state: ThermostatState) -> None:
        """None: the friction absorbs it."""

    def drift_gain(self, state: ThermostatState) -> torch.Tensor:
        """1 / alpha, with the friction of the state."""
        return 1.0 / state.friction

    def momentum_variance(self, temperature: float) -> float:
        """The temperature."""
        return temperature

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> ThermostatState:
        """Start at ``theta`` with r ~ N(0, tau I) and alpha = a."""
        r = scale(sqrt(control.temperature), noise(theta))
        return ThermostatState(theta, r, scale(self.noise_level, torch.ones_like(self._kinetic(r))))

    def step(self, state: ThermostatState, potential: Potential, noise: Noise, control: Control) -> ThermostatState:
        """Advance by one step."""
        eps, tau = control.step_size, control.temperature
        theta, r, alpha = state
        r = add_scaled(r - alpha * r, -sqrt(eps), potential.grad(theta))
        r = add_scaled(r, sqrt(2.0 * self.noise_level * tau), noise(theta))
        return ThermostatState(add_scaled(theta, sqrt(eps), r), r, alpha + self._heating(r, eps, tau))

    def _heating(self, r: Theta, eps: Coefficient, tau: Coefficient) -> torch.Tensor:
        """Return k (|r|^2 / (P tau) - 1), and 0 where tau = 0: there alpha would only ratchet upwards."""
        rate = ratio(eps * tau if self.thermostat_rate is None else self.thermostat_rate, tau)
        kinetic = self._kinetic(r)
        return scale(rate, kinetic - scale(tau, torch.ones_like(kinetic)))

    def _kinetic(self, r: Theta) -> torch.Tensor:
        """Return |r|^2 / P, (C, 1)."""
        return r.square().mean(1, keepdim=True)


@dataclass(eq=False)
class MSGNHT(SGNHT):
    """Multivariate SGNHT: one thermostat per parameter.

    As SGNHT, with alpha <- alpha + u^2 - eps tau, coordinate by coordinate.

    Source: Gan et al. 2015, equation 6, with the temperature tau added (theirs is 1).

    Parameters
    ----------
    noise_level : float > 0, default 0.05
        a, the injected noise and the initial friction per step, dimensionless.
    thermostat_rate : float >= 0 or None, default None
        k in alpha <- alpha + k (r^2 / tau - 1). None is eps tau, as published; 0 freezes the friction at a.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import MSGNHT
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=MSGNHT(), step_size=0.05, n_steps=500)
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    source: ClassVar[str] = "Gan et al. 2015, eq. 6"
    use: ClassVar[str] = "As sgnht, where the gradient noise differs between parameters."

    def _kinetic(self, r: Theta) -> torch.Tensor:
        """Return r^2, (C, P)."""
        return r.square()
