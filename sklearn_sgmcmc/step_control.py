"""Keep the step below what the curvature of the posterior and the noise of its gradients allow: neither is known beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Snapshot, Theta

FIRST_ITERATIONS = 10
"""Power iterations of the first look at the curvature; later ones take one, from the last direction."""
REACH = 1e-3
"""Length of the difference that gives a Hessian-vector product, relative to 1 + |theta|."""
DENSE = 8
"""At step t the next look is t / DENSE steps away: noise levels collapse early in a run, while steps are still long."""
FORGET = 0.95
"""Share of the last curvature below which a new one does not fall: steps grow slowly."""


@dataclass(frozen=True)
class Caution:
    """How far below a sampler's stability limit a step stays.

    share : largest step size times curvature, as a share of the sampler's stability limit.
    rise : weight of a new look in the running average of H u; 1 follows it at once.
    longest_wait : most steps between two looks.
    largest : largest factor by which the base step is multiplied; 1 only cuts it.
    noise_ratio : largest ratio of the gradients' noise to the injected one, as the median over parameters; inf does not ask.
    """

    share: Coefficient
    rise: float
    longest_wait: int
    largest: Coefficient = 1.0
    noise_ratio: float = math.inf


CLOSE = Caution(share=0.125, rise=1.0, longest_wait=25)
"""At full batch, and for curvature that can grow without bound. SGLD's variance in the stiffest direction is then at most
1 / (1 - 0.125) = 1.14 times the target's."""
NOISY = Caution(share=0.35, rise=0.1, longest_wait=100)
"""For minibatches of a likelihood whose curvature the data bound: there the noise of the gradients matters more than the step."""


class StepControl:
    """Cap each chain's step size at a share of limit / (largest curvature of the minibatch potential), while it may adapt.

    A small noise standard deviation sd puts a curvature of order N / sd^2 into the potential. With a fixed step the chain gets one
    huge kick when sd has become small, from which a network need not recover. The curvature along the path is followed by power
    iteration on differences of gradients; the cap is frozen before the first kept draw.
    """

    def __init__(
        self, base: Coefficient, limit: Coefficient, caution: Caution, noise_gain: Callable[[Any], Any] = lambda state: None
    ) -> None:
        self.base = base
        self.limit = limit * caution.share
        self.caution = caution
        self.noise_gain = noise_gain
        self.variance: Theta | None = None
        self.noise_limit: torch.Tensor | float = math.inf
        self.curvature: torch.Tensor | None = None
        self.direction: Theta | None = None
        self.next_look = 0
        self.step = 0
        self.last: tuple[Control, Control] | None = None
        self.uncut: bool | None = None

    def __call__(self, control: Control, theta: Theta, potential: Potential, noise: Noise, state: Any = None) -> Control:
        """Return the control with its step size multiplied by each chain's factor, (C, 1) float64."""
        if control.adapt or self.curvature is None:
            if self.step == self.next_look:
                self._update_curvature(theta, potential, noise)
                if self.caution.noise_ratio < math.inf and state is not None:
                    self._update_noise_limit(theta, potential, control.temperature, self.noise_gain(state))
                self.next_look += 1 + min(self.step // DENSE, self.caution.longest_wait)
                self.last = None
            self.step += 1
        if self.last is None or self.last[0] is not control:
            factor = self.factor()
            if self.uncut is None and not control.adapt:
                self.uncut = bool((factor == 1.0).all())  # one synchronisation in a run, when the cuts are frozen
            self.last = (control, control if self.uncut else replace(control, step_size=control.step_size * factor))
        return self.last[1]

    def factor(self) -> torch.Tensor:
        """Return what multiplies each chain's steps, (C, 1) float64 > 0; the schedule's multiplier comes on top."""
        assert self.curvature is not None
        factor = torch.clamp(self.limit / self.curvature, max=self.noise_limit) / self.base
        return factor.clamp(max=self.caution.largest)

    def state(self) -> Snapshot:
        """Return what the looks have found so far, and when the next is due."""
        found = {name: getattr(self, name) for name in ("variance", "noise_limit", "curvature", "direction")}
        counts = {"next_look": torch.tensor(self.next_look), "step": torch.tensor(self.step)}
        return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)} | counts

    def restore(self, state: Snapshot) -> None:
        """Go on from where ``state`` was taken."""
        for name, value in state.items():
            setattr(self, name, int(value) if name in ("next_look", "step") else value)

    def _update_noise_limit(self, theta: Theta, potential: Potential, temperature: Coefficient, gain: Any) -> None:
        """Update the variance of the gradients' noise, from two further batches, and the step at which it reaches its share."""
        if gain is None:
            return
        variance = 0.5 * (potential.fresh().grad(theta).double() - potential.fresh().grad(theta)).square()
        self.variance = variance if self.variance is None else torch.lerp(self.variance, variance, self.caution.rise)
        per_step = (gain * self.variance).median(dim=1, keepdim=True).values
        tau = torch.as_tensor(temperature, dtype=torch.float64, device=theta.device)
        allowed = self.caution.noise_ratio * 2.0 * tau / per_step.clamp_min(1e-300)
        self.noise_limit = torch.where(tau > 0, allowed, math.inf)  # where no noise is injected there is no ratio

    def _update_curvature(self, theta: Theta, potential: Potential, noise: Noise) -> None:
        """Update the estimate of the largest absolute eigenvalue of the Hessian, and the direction that belongs to it.

        H u is averaged over looks before its length is taken: the largest eigenvalue of the mean Hessian is wanted, and that of a
        single minibatch is larger.
        """
        direction = noise(theta) if self.direction is None else self.direction
        for _ in range(FIRST_ITERATIONS if self.direction is None else 1):
            unit = (direction / _length(direction)).to(theta.dtype)
            direction = _hessian_product(potential, theta, unit)
        if self.curvature is None:
            self.direction, self.curvature = direction, _length(direction)
            return
        self.direction = unit * (self.curvature * (1.0 - self.caution.rise)) + direction * self.caution.rise
        self.curvature = torch.maximum(_length(self.direction), FORGET * self.curvature)


def _hessian_product(potential: Potential, theta: Theta, unit: Theta) -> Theta:
    """Return H u for unit vectors u, by a central difference of gradients: a fifth of the cost of double differentiation.

    It also sees the kinks of a relu within its reach, as a step does.
    """
    reach = REACH * (1.0 + _length(theta)).to(theta.dtype)
    return (potential.grad(theta + reach * unit) - potential.grad(theta - reach * unit)) / (2.0 * reach)


def _length(direction: Theta) -> torch.Tensor:
    """Return each chain's norm, (C, 1) float64: float32 would overflow at 1e19."""
    return direction.double().square().sum(dim=1, keepdim=True).sqrt().clamp_min(1e-300)
