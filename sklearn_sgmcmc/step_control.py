"""Keep the step below the stability limit of a posterior whose curvature grows while the chain runs."""

from __future__ import annotations

from dataclasses import replace

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta

TARGET = 0.25
"""Largest step size times curvature. The variance of SGLD in that direction is then 1 / (1 - 0.125) = 1.14 times too large."""
EVERY = 25
"""Steps between two looks at the curvature."""
FIRST_ITERATIONS = 10
"""Power iterations of the first look; later ones take one, from the last direction."""
FORGET = 0.9
"""Share of the last curvature below which a new estimate does not fall: a step grows slowly and shrinks at once."""


class StepControl:
    """Cap each chain's step size at TARGET / (largest curvature of the minibatch potential), while adaptation is allowed.

    A learned noise standard deviation sd puts a curvature of order N / sd^2 into the potential. With a fixed step the chain
    gets one huge kick when sd has become small, from which a network need not recover. The curvature along the path is followed
    by power iteration on Hessian-vector products; the cap is frozen before the first kept draw.
    """

    def __init__(self) -> None:
        self.curvature: torch.Tensor | None = None
        self.direction: Theta | None = None
        self.count = 0

    def __call__(self, control: Control, theta: Theta, potential: Potential, noise: Noise) -> Control:
        """Return the control with its step size capped per chain, (C, 1) float64."""
        if control.adapt or self.curvature is None:
            if self.count % EVERY == 0:
                self._look(theta, potential, noise)
            self.count += 1
        return replace(control, step_size=self.cap(control.step_size))

    def cap(self, step_size: Coefficient) -> torch.Tensor:
        """Return the smaller of ``step_size`` and the limit of each chain, (C, 1) float64."""
        assert self.curvature is not None
        base = torch.as_tensor(step_size, dtype=torch.float64, device=self.curvature.device)
        return torch.minimum(base, TARGET / self.curvature)

    def _look(self, theta: Theta, potential: Potential, noise: Noise) -> None:
        """Update the estimate of the largest absolute eigenvalue of the Hessian."""
        first = self.direction is None or self.direction.shape != theta.shape
        direction = noise(theta) if first else self.direction
        for _ in range(FIRST_ITERATIONS if first else 1):
            unit = direction / direction.norm(dim=1, keepdim=True).clamp_min(1e-30)
            direction = potential.hvp(theta, unit)
        estimate = direction.norm(dim=1, keepdim=True).double().clamp_min(1e-30)
        self.direction = direction
        self.curvature = estimate if self.curvature is None else torch.maximum(estimate, FORGET * self.curvature)
