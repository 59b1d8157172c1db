"""The engine for any differentiable potential."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import torch

from sklearn_sgmcmc._typing import Coefficient, PerChain, Theta
from sklearn_sgmcmc.engine import Stage, run
from sklearn_sgmcmc.noise import BLOCK, BlockNoise, noise_generators
from sklearn_sgmcmc.samplers._base import Sampler
from sklearn_sgmcmc.samplers.registry import SAMPLERS
from sklearn_sgmcmc.schedules import SCHEDULES, Schedule
from sklearn_sgmcmc.threads import one_thread


@dataclass(frozen=True)
class FunctionPotential:
    """A potential given as a function (C, P) -> (C,), with its gradient by automatic differentiation unless one is given.

    It has no data: binding a minibatch leaves it as it is, and N is 1.
    """

    function: Callable[[Theta], PerChain]
    gradient: Callable[[Theta], Theta] | None
    n_params: int
    n_data: float = 1.0

    def bind(self, batch: None) -> FunctionPotential:
        """Return the same potential at every step."""
        return self

    def value(self, theta: Theta) -> PerChain:
        """Return U, shape (C,), float64."""
        value = self.function(theta)
        if value.shape != theta.shape[:1]:
            raise ValueError(
                f"potential returned the shape {tuple(value.shape)} for theta of shape {tuple(theta.shape)}: "
                "it must return one number per chain, (C,)."
            )
        return value.double()

    def grad(self, theta: Theta) -> Theta:
        """Return the gradient of U, shape (C, P)."""
        if self.gradient is None:
            return self.value_and_grad(theta)[1]
        gradient = self.gradient(theta)
        if gradient.shape != theta.shape:
            raise ValueError(
                f"gradient returned the shape {tuple(gradient.shape)} for theta of shape {tuple(theta.shape)}: they must agree."
            )
        return gradient

    def value_and_grad(self, theta: Theta) -> tuple[PerChain, Theta]:
        """Return both."""
        if self.gradient is not None:
            return self.value(theta), self.grad(theta)
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            value = self.value(leaf)
            return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]

    def hvp(self, theta: Theta, vector: Theta) -> Theta:
        """Return the Hessian of U at ``theta`` times ``vector``, shape (C, P)."""
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            gradient = torch.autograd.grad(self.value(leaf).sum(), leaf, create_graph=True)[0]
            return torch.autograd.grad((gradient * vector).sum(), leaf)[0]


def sample(
    potential: Callable[[Theta], PerChain],
    theta0: Theta,
    *,
    sampler: str | Sampler = "sghmc",
    step_size: Coefficient,
    schedule: str | Schedule = "constant",
    n_steps: int,
    temperature: Coefficient = 1.0,
    burn_in: float = 0.5,
    n_draws: int = 1000,
    random_state: int = 0,
    gradient: Callable[[Theta], Theta] | None = None,
) -> torch.Tensor:
    """Sample exp(-U / temperature) for any differentiable U, all chains as one batch.

    Parameters
    ----------
    potential : callable
        U: (C, P) tensor -> (C,) tensor, in nats, for any C.
    theta0 : tensor of shape (C, P)
        Start of each chain; its dtype and device are those of the run.
    sampler : str or Sampler, default "sghmc"
        Fields may be floats or (C, 1) tensors: a grid of hyperparameters is just more chains.
    step_size : float > 0 or tensor of shape (C, 1)
        epsilon, the factor of the gradient of U in one update.
    schedule : str or Schedule, default "constant"
        Multipliers of step size and temperature.
    n_steps : int >= 1
        Steps.
    temperature : float >= 0 or tensor of shape (C, 1), default 1
        tau.
    burn_in : float in [0, 1), default 0.5
        Share of the steps before the first kept draw.
    n_draws : int >= 1, default 1000
        Most draws kept per chain.
    random_state : int, default 0
        Seed.
    gradient : callable or None, default None
        (C, P) -> (C, P), used in place of automatic differentiation: a stochastic gradient, say.

    Returns
    -------
    draws : tensor of shape (S, C, P), S <= n_draws

    Raises
    ------
    ValueError
        If a shape is wrong, a parameter is outside its domain, or a chain stops being finite: the message names chains and step.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), step_size=0.1, n_steps=2000, n_draws=200)
    >>> draws.shape, bool(abs(draws.var() - 1) < 0.1)
    (torch.Size([200, 64, 2]), True)
    """
    if theta0.ndim != 2:
        raise ValueError(
            f"theta0 has shape {tuple(theta0.shape)}: it must be (C, P), chains by parameters; use theta0[None] for one."
        )
    chosen = SAMPLERS[sampler]() if isinstance(sampler, str) and sampler in SAMPLERS else sampler
    if not isinstance(chosen, Sampler):
        raise ValueError(f"sampler={sampler!r} is not known; choose one of {', '.join(SAMPLERS)} or pass a Sampler object.")
    plan = SCHEDULES[schedule]() if isinstance(schedule, str) and schedule in SCHEDULES else schedule
    if not isinstance(plan, Schedule):
        raise ValueError(f"schedule={schedule!r} is not known; choose one of {', '.join(SCHEDULES)} or pass a Schedule object.")
    chosen = dataclasses.replace(chosen)  # type: ignore[type-var]  # every sampler is a dataclass
    chosen.check()
    target = FunctionPotential(potential, gradient, theta0.shape[1])
    _check_start(target, theta0)
    timeline = plan.timeline(n_steps=n_steps, steps_per_epoch=1.0, burn_in=burn_in, n_draws=n_draws)
    stage = Stage(chosen, timeline, target, _column(step_size, theta0), _column(temperature, theta0))
    blocks = range(-(-len(theta0) // BLOCK))
    noise = BlockNoise(noise_generators((random_state,), blocks, theta0.device))
    with one_thread():
        result = run([stage], theta0, repeat(None), noise)
    dead = np.flatnonzero(result.diverged_at.cpu().numpy() >= 0)
    if len(dead):
        step = int(result.diverged_at[result.diverged_at >= 0].min())
        raise ValueError(
            f"{len(dead)} of {len(theta0)} chains stopped being finite by step {step} (the first of them: {dead[:5].tolist()}); "
            f"try a step_size below {step_size}, or look for NaN in the potential."
        )
    return result.draws


def _column(value: Coefficient, theta: Theta) -> Coefficient:
    """Return a per-chain coefficient as float64 on the device of the run."""
    if not isinstance(value, torch.Tensor):
        return float(value)
    if value.shape != (len(theta), 1):
        raise ValueError(f"a per-chain value has shape {tuple(value.shape)}: it must be ({len(theta)}, 1), one row per chain.")
    return value.to(device=theta.device, dtype=torch.float64)


def _check_start(potential: FunctionPotential, theta0: Theta) -> None:
    """Raise ValueError if the potential or its gradient is not finite, or has the wrong shape, at the start."""
    value, gradient = potential.value_and_grad(theta0)
    bad = ~(torch.isfinite(value) & torch.isfinite(gradient).all(dim=1))
    if bool(bad.any()):
        chains = torch.nonzero(bad)[:5, 0].tolist()
        raise ValueError(f"potential or its gradient is not finite at theta0 for chains {chains} (at most five are named).")
