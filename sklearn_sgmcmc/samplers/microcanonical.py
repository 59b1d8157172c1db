"""Microcanonical Langevin dynamics: the velocity has length one, and turns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, add_scaled, exp, scale, sqrt

FASTEST_GROWTH, FASTEST_CUT = 1.1, 0.5
"""Bounds of the factor by which a step size changes from one step to the next."""
HUGE, HUGE_SHARE = 50.0, 0.2
"""A move whose energy changes by more nats than these, the second per parameter, is taken back while the step adapts."""
WEAKEST, LEAST_SUM = {torch.float32: 1e-36, torch.float64: 1e-150}, 1e-32
"""Forces taken for none: their squares underflow, or their inverse does not fit into the dtype; least 1 + c of a kick."""
AGAINST = -0.999
"""c from which on a direction counts as one straight against the force."""
FORGET = 0.99
"""Memory of the mean squared energy error while the step adapts: a hundred steps."""


class MicrocanonicalState(NamedTuple):
    """theta, the unit velocity u and the gradient (C, P); U (C, 1); what multiplies eps, and the average that sets it (C, 1).

    ``error`` averages (energy error)^2 / (P step_factor^3) and ``weight`` ones; all but theta, u and the gradient are float64.
    """

    theta: Theta
    velocity: Theta
    gradient: Theta
    value: torch.Tensor
    step_factor: torch.Tensor
    error: torch.Tensor
    weight: torch.Tensor


@dataclass(eq=False)
class MCLMC(Sampler):
    """Microcanonical Langevin Monte Carlo, unadjusted, full batch.

    With the time step h = sqrt(P eps tau): half a kick, theta <- theta + h u, half a kick, and a partial refreshment
    u <- (u + nu z) / |u + nu z|, nu^2 = (exp(2 / memory) - 1) / P, z ~ N(0, I). With e = -grad U / |grad U|,
    d = t |grad U| / (tau (P - 1)), c = e u and q = exp(-d), a kick over the time t is
    u <- e (1 - q)(1 + q + c (1 - q)) + 2 q u, normalised;   it changes the kinetic energy by
    (P - 1)[d - log 2 + log(1 + c + (1 - c) q^2)].

    The energy change of a step, that of U / tau plus those of its kicks, is 0 for exact dynamics and grows as eps^(3/2). During
    burn-in each chain's eps is multiplied by the factor that makes its root mean square ``energy_error`` times sqrt P; then it is
    frozen. The bias vanishes with h. Needs tau > 0 and P >= 2.

    Source: Robnik & Seljak 2023, section 3, with the temperature tau added (theirs is 1).

    Parameters
    ----------
    energy_error : float > 0 or None, default 0.05
        Root mean square energy change of a step per sqrt P, in nats, that the step size is adapted to. None keeps the step size.
    memory : float >= 0.1, default 50
        Steps after which the direction of motion is forgotten: L / h.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import MCLMC
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=MCLMC(), step_size=0.1, n_steps=500)
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    energy_error: Coefficient | None = 0.05
    memory: Coefficient = 50.0

    law: ClassVar[Law] = "small step"
    affine = "no"
    needs: ClassVar[frozenset[str]] = frozenset({"full_batch"})
    min_params: ClassVar[int] = 2
    allows_zero_temperature: ClassVar[bool] = False
    stability_limit = None  # the energy error sets the step
    default_learning_rate: ClassVar[float] = 0.01
    source: ClassVar[str] = "Robnik & Seljak 2023, section 3"
    use: ClassVar[str] = "Full batches and no wish to choose a step size: it finds its own, one per chain."

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("energy_error", "a number > 0, or None", lambda error: True if error is None else error > 0)
        self.check_field("memory", "a number >= 0.1", lambda steps: steps >= 0.1)

    def at_fixed_step(self) -> Self:
        """Return the sampler without adaptation of its step."""
        return replace(self, energy_error=None)

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> MicrocanonicalState:
        """Start at ``theta`` in a random direction."""
        value, gradient = potential.value_and_grad(theta)
        one = torch.ones(len(theta), 1, dtype=torch.float64, device=theta.device)
        return MicrocanonicalState(theta, _unit(noise(theta)), gradient, value[:, None], one, 0.0 * one, 0.0 * one)

    def step(self, state: MicrocanonicalState, potential: Potential, noise: Noise, control: Control) -> MicrocanonicalState:
        """Advance by one step of velocity Verlet and a partial refreshment."""
        tau, P = control.temperature, state.theta.shape[1]
        h = (P * control.step_size * tau * state.step_factor).sqrt()
        u, first = kick(state.velocity, state.gradient, 0.5 * h, tau)
        theta = add_scaled(state.theta, h, u)
        value, gradient = potential.value_and_grad(theta)
        u, second = kick(u, gradient, 0.5 * h, tau)
        nu = sqrt((exp(2.0 / self.memory) - 1.0) / P)
        after = state._replace(
            theta=theta, velocity=_unit(add_scaled(u, nu, noise(theta))), gradient=gradient, value=value[:, None]
        )
        if self.energy_error is None or not control.adapt:
            return after
        return self._adapt(state, after, (after.value - state.value) / tau + first + second)

    def _adapt(self, before: MicrocanonicalState, after: MicrocanonicalState, change: torch.Tensor) -> MicrocanonicalState:
        """Return the state with a step for the next move.

        A move that is not finite, or that a stiff direction has thrown far off, is taken back and the step cut.
        """
        P = before.theta.shape[1]
        assert self.energy_error is not None
        ok = change.abs() <= max(HUGE, HUGE_SHARE * P)  # False where it is not finite
        theta, u, gradient, value = (torch.where(ok, new, old) for new, old in zip(after[:4], before[:4], strict=True))
        factor = before.step_factor
        error = FORGET * before.error + torch.where(ok, change, 0.0).square() / (P * factor**3)
        weight = FORGET * before.weight + ok
        wanted = (self.energy_error**2 * weight / error.clamp_min(1e-300)) ** (1.0 / 3.0)
        growth = torch.where(ok, (wanted / factor).clamp(FASTEST_CUT, FASTEST_GROWTH), FASTEST_CUT)
        return MicrocanonicalState(theta, u, gradient, value, growth * factor, error, weight)


def kick(u: Theta, gradient: Theta, time: Coefficient, temperature: Coefficient) -> tuple[Theta, torch.Tensor]:
    """Return the velocity after a kick over ``time`` and the change of kinetic energy, (C, 1) float64, free of overflow."""
    P, compiled = u.shape[1], _compiled(u)
    if compiled is not None:
        over = time / temperature
        of_chains = over if isinstance(over, torch.Tensor) else torch.full((len(u), 1), over, dtype=torch.float64, device="cpu")
        return compiled.kick(u, gradient, of_chains)
    force = _norm(gradient)
    length = torch.where(force < WEAKEST[u.dtype], 1.0, force)  # without force c = 0 and q = 1
    d = time * force / (temperature * (P - 1))
    c = ((gradient * u).sum(dim=1, keepdim=True, dtype=torch.float64) / -length).clamp_min(-1.0)
    q = torch.exp(-d)
    against = c <= AGAINST  # there 1 + c is lost to rounding: it is taken from p = u - c e, whose square it is
    p = add_scaled(u, c / length, gradient)
    sum_ = torch.where(against, (_norm(p).square() / (1.0 - c)).clamp_min(LEAST_SUM), 1.0 + c)
    norm = sum_ + (2.0 - sum_) * q * q  # of e (1 - q)(1 + q + c (1 - q)) + 2 q u
    of_u = (1.0 - q) * (1.0 + q + c * (1.0 - q)) / (-length * norm)
    of_p = (sum_ - (2.0 - sum_) * q * q) / (-length * norm)
    turned = add_scaled(scale(2.0 * q / norm, torch.where(against, p, u)), torch.where(against, of_p, of_u), gradient)
    turned = torch.where(against, _unit(turned), turned)  # p is at right angles to e but for its rounding
    return turned, (P - 1) * (d - math.log(2.0) + torch.log(norm))


def _norm(vector: Theta) -> torch.Tensor:
    """Return each chain's norm, (C, 1) float64: float32 would overflow at 1e19."""
    length: torch.Tensor = torch.linalg.vector_norm(vector, dim=1, keepdim=True, dtype=torch.float64)
    return length


def _unit(vector: Theta) -> Theta:
    compiled = _compiled(vector)
    return vector / _norm(vector).to(vector.dtype) if compiled is None else compiled.unit(vector)


def _compiled(vector: Theta) -> kernels.Velocity | None:
    """Return what does the work of ``kick`` and ``_unit`` in one call: on a CPU, without automatic differentiation."""
    return kernels.velocity(vector.dtype) if vector.is_cpu and not vector.requires_grad and vector.is_contiguous() else None
