"""Underdamped (kinetic) Langevin dynamics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import (
    Law,
    Sampler,
    accumulate,
    add_scaled,
    check_noise_correction,
    exp,
    not_negative,
    positive,
    scale,
    sqrt,
)


class KineticState(NamedTuple):
    """theta and the momentum r, both (C, P); in equilibrium r has variance 2 tau / (2 - friction) as eps -> 0."""

    theta: Theta
    momentum: Theta


@dataclass(eq=False)
class SGHMC(Sampler):
    """Stochastic gradient Hamiltonian Monte Carlo, semi-implicit, in learning-rate form.

    v <- (1 - f) v - eps g + N(0, 2 f eps tau - eps^2 V);   theta <- theta + v.

    The state holds r = v / sqrt(eps), so that a schedule that changes eps rescales v by sqrt(eps' / eps) by itself.
    On U = lambda theta^2 / 2, h = eps lambda, gradient noise s2, V = 0, q = 2 f eps tau + eps^2 s2, the law is exact:
    variance q (2 - f) / (f h (4 - 2 f - h)), stable for h < 4 - 2 f. The bias is O(eps).

    Source: Chen, Fox & Guestrin 2014, equation 15, with theta moved by the NEW v and the temperature tau added (theirs is 1).

    Parameters
    ----------
    friction : float in (0, 1], default 0.2
        f, the share of the velocity lost per step, dimensionless.
    gradient_noise_variance : float >= 0, default 0
        V, the known variance of the stochastic gradient per coordinate, in nats^2; it needs independent batches and
        eps V <= 2 f tau.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import SGHMC
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=SGHMC(), step_size=0.1, n_steps=500)
    >>> abs(float(draws.values.var()) - 1 / (1 - 0.1 / (2 * (2 - 0.2)))) < 0.15
    True
    """

    friction: Coefficient = 0.2
    gradient_noise_variance: Coefficient = 0.0

    law: ClassVar[Law] = "small step"
    default_learning_rate: ClassVar[float] = 0.03
    source: ClassVar[str] = "Chen, Fox & Guestrin 2014, eq. 15"
    use: ClassVar[str] = "Most networks: it goes furthest per gradient of those that take minibatches."

    @property
    def stability_limit(self) -> Coefficient:
        """4 - 2 f."""
        return 4.0 - 2.0 * self.friction

    @property
    def needs_independent_batches(self) -> bool:
        """The noise of reshuffled batches cancels over an epoch: subtracting it would be wrong."""
        return bool(torch.as_tensor(self.gradient_noise_variance > 0).any())

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("friction", "a number in (0, 1]", lambda f: (f > 0) & (f <= 1))
        self.check_field("gradient_noise_variance", "a number >= 0", not_negative)

    def check_run(self, largest_step: Coefficient, least_temperature: Coefficient) -> None:
        """Raise ValueError if the noise of the gradients alone exceeds what may be injected: 2 f tau - eps V must stay >= 0."""
        check_noise_correction(self, 2.0 * self.friction, largest_step, least_temperature)

    def gradient_noise_gain(self, state: KineticState) -> Coefficient:
        """1 / f: the injected noise is 2 f eps tau."""
        return 1.0 / self.friction

    def drift_gain(self, state: KineticState) -> Coefficient:
        """1 / f: the velocity adds up 1 / f kicks."""
        return 1.0 / self.friction

    def momentum_variance(self, temperature: float) -> float:
        """2 tau / (2 - f)."""
        return 2.0 * temperature / (2.0 - float(self.friction))

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> KineticState:
        """Start at ``theta`` with r ~ N(0, tau I)."""
        return KineticState(theta, scale(sqrt(control.temperature), noise(theta)))

    def step(self, state: KineticState, potential: Potential, noise: Noise, control: Control) -> KineticState:
        """Advance by one step: first the momentum, then theta with the new momentum."""
        f, eps, tau = self.friction, control.step_size, control.temperature
        theta, r = state
        g = potential.grad(theta)
        r = accumulate(add_scaled(r, -f, r), -sqrt(eps), g)
        r = accumulate(r, sqrt(2.0 * f * tau - eps * self.gradient_noise_variance), noise(theta))
        return KineticState(add_scaled(theta, sqrt(eps), r), r)


class SplittingState(NamedTuple):
    """theta, the momentum r ~ N(0, tau I) and the gradient at theta, all (C, P)."""

    theta: Theta
    momentum: Theta
    gradient: Theta


@dataclass(eq=False)
class BAOAB(Sampler):
    """Splitting integrators of the underdamped Langevin equation: a word over A (drift), B (kick) and O (heat bath).

    With the time step sqrt(eps), a letter that stands k times in the word acts for the k-th part of it:
    A: theta <- theta + sqrt(eps) r / k;   B: r <- r - sqrt(eps) g / k;
    O: r <- c r + sqrt((1 - c^2) tau) N(0, I), c = exp(-f / k).

    "BAOAB" has the exact variance of theta on a Gaussian at every stable step; "OBABO" that of r. One gradient per step where the
    letters B between two drifts are one or meet at the ends of the word.

    Source: Leimkuhler & Matthews 2013, section 2, with friction times time step called f.

    Parameters
    ----------
    friction : float > 0, default 0.2
        f per step, dimensionless; the velocity keeps the share exp(-f).
    word : str, default "BAOAB"
        Letters A, B and O, each at least once.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import BAOAB
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=BAOAB(), step_size=0.5, n_steps=500)
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    friction: Coefficient = 0.2
    word: str = "BAOAB"

    law: ClassVar[Law] = "small step"
    default_learning_rate: ClassVar[float] = 0.03
    source: ClassVar[str] = "Leimkuhler & Matthews 2013, section 2"
    use: ClassVar[str] = "Full batches: at long steps its bias is the smallest of the kinetic samplers."

    @property
    def stability_limit(self) -> Coefficient:
        """4, the leapfrog's; a word with more drifts or kicks is not less stable."""
        return 4.0

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("friction", "a number > 0", positive)
        letters = "a word of the letters A, B and O, each at least once"
        self.check_field("word", letters, lambda word: set(word) == set("ABO"))

    def gradient_noise_gain(self, state: SplittingState) -> Coefficient:
        """2 / (1 - exp(-2 f)): the heat bath injects (1 - exp(-2 f)) tau."""
        return 2.0 / (1.0 - exp(-2.0 * self.friction))

    def drift_gain(self, state: SplittingState) -> Coefficient:
        """(1 + c) / (2 (1 - c)), c = exp(-f): the sum of the velocity's correlations, its first half a step's."""
        kept = exp(-self.friction)
        return (1.0 + kept) / (2.0 * (1.0 - kept))

    def momentum_variance(self, temperature: float) -> float:
        """The temperature."""
        return temperature

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> SplittingState:
        """Start at ``theta`` with r ~ N(0, tau I)."""
        return SplittingState(theta, scale(sqrt(control.temperature), noise(theta)), potential.grad(theta))

    def step(self, state: SplittingState, potential: Potential, noise: Noise, control: Control) -> SplittingState:
        """Go through the letters of the word; the gradient is evaluated anew after each drift that a kick or the end follows."""
        h = sqrt(control.step_size)
        theta, r, g = state
        fresh = True
        for letter in self.word:
            share = 1.0 / self.word.count(letter)
            if letter == "A":
                theta, fresh = add_scaled(theta, share * h, r), False
            elif letter == "B":
                g, fresh = (g if fresh else potential.grad(theta)), True
                r = add_scaled(r, -share * h, g)
            else:
                kept = exp(-share * self.friction)
                r = add_scaled(scale(kept, r), sqrt((1.0 - kept * kept) * control.temperature), noise(theta))
        return SplittingState(theta, r, g if fresh else potential.grad(theta))
