"""Langevin proposals with a Metropolis test: exact at any step size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from sklearn_sgmcmc._typing import Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, scale
from sklearn_sgmcmc.samplers.langevin import langevin_move


class MALAState(NamedTuple):
    """theta (C, P), its gradient (C, P) and potential (C, 1, float64), and the number of accepted proposals (C, 1)."""

    theta: Theta
    gradient: Theta
    value: torch.Tensor
    accepted: torch.Tensor


@dataclass(eq=False)
class MALA(Sampler):
    """Metropolis-adjusted Langevin algorithm, full batch: exact at any step size.

    theta* = theta - eps grad U(theta) + sqrt(2 eps tau) N(0, I), accepted with probability min(1, alpha),
    log alpha = [U(theta) - U(theta*)] / tau + log q(theta | theta*) - log q(theta* | theta),
    log q(b | a) = -|b - a + eps grad U(a)|^2 / (4 eps tau).

    A proposal whose potential is not finite is rejected. Needs tau > 0.

    Source: Roberts & Tweedie 1996, section 1.4.1, with their step h = 2 eps and the temperature tau added (theirs is 1).

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import MALA
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=MALA(), step_size=0.5, n_steps=500)
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    law: ClassVar[Law] = "exact"
    affine = "no"
    needs: ClassVar[frozenset[str]] = frozenset({"full_batch"})
    allows_zero_temperature: ClassVar[bool] = False
    default_learning_rate: ClassVar[float] = 0.1
    source: ClassVar[str] = "Roberts & Tweedie 1996, section 1.4.1"
    use: ClassVar[str] = "Small data, where exactness at any step size matters more than speed."

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> MALAState:
        """Start at ``theta``."""
        value, gradient = potential.value_and_grad(theta)
        return MALAState(theta, gradient, value[:, None], torch.zeros_like(value[:, None]))

    def step(self, state: MALAState, potential: Potential, noise: Noise, control: Control) -> MALAState:
        """Propose, and accept where log u < log alpha, log u = -|z|^2 / 2 for two normals z."""
        proposal = langevin_move(state.theta, state.gradient, noise, control)
        value, gradient = potential.value_and_grad(proposal)
        there = MALAState(proposal, gradient, value[:, None], state.accepted)
        log_u = -0.5 * noise(value.new_empty(len(value), 2)).square().sum(1, keepdim=True)
        accept = log_u < self.log_acceptance(state, there, control)
        return MALAState(
            torch.where(accept, proposal, state.theta),
            torch.where(accept, gradient, state.gradient),
            torch.where(accept, there.value, state.value),
            state.accepted + accept,
        )

    @staticmethod
    def log_acceptance(here: MALAState, there: MALAState, control: Control) -> torch.Tensor:
        """Return log alpha of the move from ``here`` to ``there``, (C, 1) float64; NaN, which is never accepted, if U is."""
        eps, tau = control.step_size, control.temperature
        forth = (there.theta - here.theta + scale(eps, here.gradient)).double().square().sum(1, keepdim=True)
        back = (here.theta - there.theta + scale(eps, there.gradient)).double().square().sum(1, keepdim=True)
        return scale(1.0 / tau, here.value - there.value) + scale(1.0 / (4.0 * eps * tau), forth - back)
