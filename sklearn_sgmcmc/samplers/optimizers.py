"""The zero-temperature, no-noise end of the interface: a batch of chains is a deep ensemble."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, add_scaled, average, in_unit_interval, plus, positive, scale


class SGDState(NamedTuple):
    """theta and the velocity, both (C, P)."""

    theta: Theta
    velocity: Theta


@dataclass(eq=False)
class SGD(Sampler):
    """Stochastic gradient descent with heavy-ball momentum on the potential: each chain ends at a posterior mode.

    v <- m v - eps g;   theta <- theta + v.   Only the last state of each chain is kept. No noise, no temperature.

    Source: Polyak 1964.

    Parameters
    ----------
    momentum : float in [0, 1), default 0.9
        m, dimensionless.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import SGD
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.ones(4, 2), sampler=SGD(), step_size=0.1, n_steps=200)
    >>> draws.values.shape, bool(draws.values.abs().max() < 1e-3)
    (torch.Size([1, 4, 2]), True)
    """

    momentum: Coefficient = 0.9

    law: ClassVar[Law] = "optimiser"
    default_learning_rate: ClassVar[float] = 0.01
    source: ClassVar[str] = "Polyak 1964"
    use: ClassVar[str] = "Deep ensembles, and modes to compare a posterior with."

    @property
    def stability_limit(self) -> Coefficient:
        """2 (1 + m)."""
        return 2.0 * (1.0 + self.momentum)

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("momentum", "a number in [0, 1)", in_unit_interval)

    def effective_temperature(self, temperature: float) -> float | None:
        """An optimiser has none."""
        return None

    def drift_gain(self, state: SGDState) -> Coefficient:
        """1 / (1 - m)."""
        return 1.0 / (1.0 - self.momentum)

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> SGDState:
        """Start at ``theta`` at rest."""
        return SGDState(theta, torch.zeros_like(theta))

    def step(self, state: SGDState, potential: Potential, noise: Noise, control: Control) -> SGDState:
        """Advance by one step."""
        v = add_scaled(scale(self.momentum, state.velocity), -control.step_size, potential.grad(state.theta))
        return SGDState(state.theta + v, v)


class AdamState(NamedTuple):
    """theta and the two moving averages (C, P); the step count (C, 1)."""

    theta: Theta
    mean: Theta
    square: Theta
    steps: torch.Tensor


@dataclass(eq=False)
class Adam(Sampler):
    """Adam on the mean loss U / N: each chain ends near a posterior mode.

    m <- b1 m + (1 - b1) g/N;   v <- b2 v + (1 - b2) (g/N)^2;
    theta <- theta - learning_rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + delta).

    The step is the learning rate itself: it has no N. Only the last state of each chain is kept. No noise, no temperature.

    Source: Kingma & Ba 2015, Algorithm 1.

    Parameters
    ----------
    beta1, beta2 : floats in [0, 1), default 0.9 and 0.999
        Memories of the two averages, dimensionless.
    delta : float > 0, default 1e-8
        Keeps the division finite; units of g/N.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import Adam
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.ones(4, 2), sampler=Adam(), step_size=0.05, n_steps=500)
    >>> draws.values.shape, bool(draws.values.abs().max() < 1e-3)
    (torch.Size([1, 4, 2]), True)
    """

    beta1: Coefficient = 0.9
    beta2: Coefficient = 0.999
    delta: Coefficient = 1e-8

    law: ClassVar[Law] = "optimiser"
    affine = "no"
    default_learning_rate: ClassVar[float] = 0.005
    step_is_learning_rate: ClassVar[bool] = True
    stability_limit = None
    source: ClassVar[str] = "Kingma & Ba 2015, Algorithm 1"
    use: ClassVar[str] = "Deep ensembles without a choice of learning rate."

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("beta1", "a number in [0, 1)", in_unit_interval)
        self.check_field("beta2", "a number in [0, 1)", in_unit_interval)
        self.check_field("delta", "a number > 0", positive)

    def effective_temperature(self, temperature: float) -> float | None:
        """An optimiser has none."""
        return None

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> AdamState:
        """Start at ``theta`` with empty averages."""
        zero = torch.zeros_like(theta)
        return AdamState(theta, zero, zero, torch.zeros(len(theta), 1, dtype=torch.float64, device=theta.device))

    def step(self, state: AdamState, potential: Potential, noise: Noise, control: Control) -> AdamState:
        """Advance by one step."""
        b1, b2 = self.beta1, self.beta2
        t = state.steps + 1
        g = scale(1.0 / potential.n_data, potential.grad(state.theta))
        m = average(b1, state.mean, g)
        v = average(b2, state.square, g * g)
        m_hat = scale(1.0 / (1.0 - b1**t), m)
        v_hat = scale(1.0 / (1.0 - b2**t), v)
        return AdamState(add_scaled(state.theta, -control.step_size, m_hat / plus(self.delta, v_hat.sqrt())), m, v, t)
