"""Langevin dynamics with an adaptive drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, check_field, scale, sqrt
from sklearn_sgmcmc.samplers.langevin import langevin_move


class DriftState(NamedTuple):
    """theta and the smoothed past gradient, both (C, P)."""

    theta: Theta
    mean_gradient: Theta


@dataclass(eq=False)
class MSGLD(Sampler):
    """Momentum SGLD: the drift is the gradient plus a multiple of its moving average over the past.

    theta_{t+1} = theta_t - eps (g_t + a m_t) + sqrt(2 eps tau) N(0, I);   m_{t+1} = b m_t + (1 - b) g_t;   m_0 = 0.

    Source: Kim, Song & Liang 2020, Algorithm 1.

    Parameters
    ----------
    bias_factor : float >= 0, default 1
        a, dimensionless. At 0 the chain is SGLD, bit for bit.
    smoothing : float in [0, 1), default 0.9
        b, the memory of the moving average; 1 / (1 - b) steps.
    variant : "printed", "rescaled" or "recipe"
        - "printed" is the published update. At fixed a and b it does NOT sample exp(-U / tau): as eps -> 0 its variance on a
          Gaussian tends to that of temperature tau / (1 + a).
        - "rescaled" divides the drift by 1 + a: temperature tau, but only while eps times the curvature is far below 1 - b.
        - "recipe" averages g + sqrt(2 tau / (a eps)) N(0, I) instead of g. It is an instance of the complete recipe of
          Ma, Chen & Fox 2015 and leaves exp(-U / tau) invariant up to O(eps) for every a and b.
    """

    bias_factor: Coefficient = 1.0
    smoothing: Coefficient = 0.9
    variant: Literal["printed", "rescaled", "recipe"] = "printed"

    source: ClassVar[str] = "Kim, Song & Liang 2020, Algorithm 1"

    @property
    def law(self) -> Law:  # type: ignore[override]  # a class fact of every other sampler
        """Only the recipe form is unbiased as eps -> 0."""
        return "small step" if self.variant == "recipe" else "biased"

    @property
    def default_learning_rate(self) -> float:  # type: ignore[override]  # a class fact of every other sampler
        """SGLD's 0.2 up to a = 1, and 0.4 / (1 + a) beyond: the total drift does not grow further with a."""
        largest = float(torch.as_tensor(self.bias_factor).max())
        return min(0.2, 0.4 / (1.0 + largest))

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        check_field(self, "bias_factor", "a number >= 0", self.bias_factor >= 0)
        check_field(self, "smoothing", "0 <= smoothing < 1", _in_unit_interval(self.smoothing))
        check_field(self, "variant", "'printed', 'rescaled' or 'recipe'", self.variant in ("printed", "rescaled", "recipe"))

    @property
    def stability_limit(self) -> Coefficient:
        """Least h with h [a (1 - b) - b] = 1 - b or h [1 + b - a (1 - b)] = 2 (1 + b), in units of the rescaled step if it is."""
        a, b = (torch.as_tensor(value, dtype=torch.float64) for value in (self.bias_factor, self.smoothing))
        first, second = (a * (1 - b) - b) / (1 - b), (1 + b - a * (1 - b)) / (2 * (1 + b))
        limit = 1.0 / torch.maximum(first, second)
        limit = limit * (1.0 + a) if self.variant == "rescaled" else limit
        return limit if limit.ndim else float(limit)

    def effective_temperature(self, temperature: float) -> float | None:
        """Return tau / (1 + a) for the printed form, tau for the others."""
        if self.variant != "printed":
            return temperature
        return None if isinstance(self.bias_factor, torch.Tensor) else temperature / (1.0 + self.bias_factor)

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> DriftState:
        """Start at ``theta`` with m_0 = 0."""
        return DriftState(theta, torch.zeros_like(theta))

    def step(self, state: DriftState, potential: Potential, noise: Noise, control: Control) -> DriftState:
        """Advance by one step; m holds past gradients only."""
        a, b = self.bias_factor, self.smoothing
        theta, m = state
        g = potential.grad(theta)
        drift = g + scale(a, m)
        if self.variant == "rescaled":
            drift = scale(1.0 / (1.0 + a), drift)
        moved = langevin_move(theta, drift, noise, control)
        if self.variant == "recipe" and not (isinstance(a, float | int) and a == 0):  # at a = 0 the average drives nothing
            g = g + scale(self._recipe_noise(control), noise(theta))
        return DriftState(moved, scale(b, m) + scale(1.0 - b, g))

    def _recipe_noise(self, control: Control) -> Coefficient:
        """Return sqrt(2 tau / (a eps))."""
        a_eps = self.bias_factor * control.step_size
        if isinstance(a_eps, torch.Tensor):
            return torch.where(a_eps > 0, 2.0 * control.temperature / a_eps, 0.0).sqrt()
        return sqrt(2.0 * control.temperature / a_eps)


def _in_unit_interval(value: Coefficient) -> bool | torch.Tensor:
    return (value >= 0) & (value < 1)
