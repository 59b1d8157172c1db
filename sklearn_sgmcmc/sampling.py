"""The engine for any differentiable potential."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray

from sklearn_sgmcmc._checks import check_integer, check_real
from sklearn_sgmcmc._typing import Coefficient, PerChain, Theta
from sklearn_sgmcmc.draws import Draws
from sklearn_sgmcmc.engine import RunResult, Stage, run
from sklearn_sgmcmc.noise import BlockNoise, blocks_of, noise_generators
from sklearn_sgmcmc.samplers._base import Sampler
from sklearn_sgmcmc.samplers.registry import SAMPLERS
from sklearn_sgmcmc.schedules import SCHEDULES, Schedule, Timeline
from sklearn_sgmcmc.threads import one_thread

FLOATS = (torch.float32, torch.float64)


@dataclass(frozen=True)
class FunctionPotential:
    """A potential given as a function (C, P) -> (C,), with its gradient by automatic differentiation unless one is given.

    It has no data: binding a minibatch leaves it as it is, and N is 1.
    """

    function: Callable[[Theta], PerChain]
    gradient: Callable[[Theta], Theta] | None
    n_params: int
    n_data: float = 1.0

    def bind(self, batch: None, following: Iterator[None]) -> FunctionPotential:
        """Return the same potential at every step."""
        return self

    def fresh(self) -> FunctionPotential:
        """Return the same potential: there are no minibatches."""
        return self

    def fisher(self, theta: Theta) -> Theta:
        """Raise ValueError: only a sum over data has an empirical Fisher information."""
        raise ValueError(
            "A potential given as a function has no Fisher information: give the metric yourself, SGRLD(inverse_metric=...), "
            "or use another sampler."
        )

    def value(self, theta: Theta) -> PerChain:
        """Return U, shape (C,), float64."""
        value = self.function(theta)
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.shape != theta.shape[:1]:
            raise ValueError(
                f"potential returned {_described(value)} for theta of shape {tuple(theta.shape)}: "
                "it must return one floating-point number per chain, a tensor of shape (C,)."
            )
        return value.double()

    def grad(self, theta: Theta) -> Theta:
        """Return the gradient of U, shape (C, P)."""
        if self.gradient is None:
            return self.value_and_grad(theta)[1]
        gradient = self.gradient(theta)
        if not isinstance(gradient, torch.Tensor) or not gradient.is_floating_point() or gradient.shape != theta.shape:
            raise ValueError(
                f"gradient returned {_described(gradient)} for theta of shape {tuple(theta.shape)}: "
                "it must return a floating-point tensor of that shape."
            )
        return gradient.to(theta.dtype, copy=True)  # the function may write its next result over this one

    def value_and_grad(self, theta: Theta) -> tuple[PerChain, Theta]:
        """Return both."""
        if self.gradient is not None:
            return self.value(theta), self.grad(theta)
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            value = self.value(leaf)
            if not value.requires_grad:
                raise ValueError(
                    "potential has no gradient by automatic differentiation: it does not depend on theta, or leaves torch "
                    "(numpy, detach). Write it in torch, or give gradient=..."
                )
            return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]

    def hvp(self, theta: Theta, vectors: torch.Tensor) -> torch.Tensor:
        """Return the Hessian of U at ``theta`` times several vectors, (C, F, P)."""
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            value = self.value(leaf)
            if not value.requires_grad:
                raise ValueError("potential has no Hessian by automatic differentiation: write it in torch for this sampler.")
            gradient = torch.autograd.grad(value.sum(), leaf, create_graph=True)[0]
            if not gradient.requires_grad:  # a linear potential
                return torch.zeros_like(vectors)
            products = [
                torch.autograd.grad((gradient * vector).sum(), leaf, retain_graph=True)[0] for vector in vectors.unbind(dim=1)
            ]
        return torch.stack(products, dim=1) if products else vectors


@torch.inference_mode(False)
@one_thread()
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
) -> Draws:
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
        Steps of the whole run, burn-in included.
    temperature : float >= 0 or tensor of shape (C, 1), default 1
        tau, dimensionless: the target is exp(-U / tau).
    burn_in : float in [0, 1), default 0.5
        Share of the steps before the first kept draw.
    n_draws : int >= 1, default 1000
        Most draws kept per chain.
    random_state : int >= 0, default 0
        Seed.
    gradient : callable or None, default None
        (C, P) -> (C, P), used in place of automatic differentiation: a stochastic gradient, say.

    Returns
    -------
    draws : Draws
        ``draws.values`` (S, C, P), S <= n_draws; see its attributes for the rest. An optimiser keeps its last state, S = 1.

    Raises
    ------
    ValueError
        If a shape is wrong, a parameter is outside its domain, or a chain stops being finite: the message names chains and step.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), step_size=0.1, n_steps=2000, n_draws=200)
    >>> draws.values.shape, bool(abs(draws.values.var() - 1) < 0.1)
    (torch.Size([200, 64, 2]), True)
    """
    if (
        not isinstance(theta0, torch.Tensor)
        or theta0.ndim != 2
        or theta0.dtype not in FLOATS
        or theta0.numel() == 0
        or theta0.is_sparse
    ):
        raise ValueError(
            f"theta0 must be a float32 or float64 tensor of shape (C, P), dense, chains by parameters, and is "
            f"{_described(theta0)}; use torch.zeros(1, P) for one chain."
        )
    if not callable(potential) or not (gradient is None or callable(gradient)):
        raise ValueError(f"potential={potential!r} and gradient={gradient!r} must be functions of theta; gradient may be None.")
    theta0 = theta0.detach().clone()
    chosen, timeline = _plan(sampler, schedule, n_steps, burn_in, n_draws)
    eps, tau = _column("step_size", step_size, theta0), _column("temperature", temperature, theta0)
    _check_controls(chosen, timeline, eps, tau)
    target = FunctionPotential(potential, gradient, theta0.shape[1])
    _check_start(target, theta0)
    blocks = blocks_of(len(theta0))
    seed = check_integer("random_state", random_state, low=0, fix="0 is the default")
    noise = BlockNoise(noise_generators((seed,), blocks, theta0.device))
    _spread_fields(chosen, theta0)
    result = run([Stage(chosen, timeline, target, eps, tau)], theta0, repeat(None), noise, watch_every_step=True)
    if result.interrupted:
        raise KeyboardInterrupt
    _check_alive(result, chosen, eps)
    accepted = getattr(result.state, "accepted", None)
    if accepted is not None and bool((accepted == 0).any()):
        warnings.warn(
            f"{type(chosen).__name__} accepted none of its {n_steps} proposals in {int((accepted == 0).sum())} of {len(theta0)} "
            f"chains: all their draws are equal. Use a step_size below {float(torch.as_tensor(eps).min()):g}.",
            RuntimeWarning,
            stacklevel=4,  # beyond the two decorators
        )
    return Draws(result.draws, result.potential_curve, result.step_size, result.state)


def _spread_fields(sampler: Sampler, theta: Theta) -> None:
    """Check that each tensor among the hyperparameters has one row per chain, and bring it to float64 on the device of the run."""
    for name, value in sampler.get_params(deep=False).items():
        if isinstance(value, Sampler):
            inner = dataclasses.replace(value)  # type: ignore[type-var]  # every sampler is a dataclass
            _spread_fields(inner, theta)
            setattr(sampler, name, inner)
        elif isinstance(value, torch.Tensor) and name != "skew":
            setattr(sampler, name, _column(f"{type(sampler).__name__}.{name}", value, theta))


def _plan(sampler: str | Sampler, schedule: str | Schedule, n_steps: int, burn_in: float, n_draws: int) -> tuple[Sampler, Timeline]:
    """Return a checked copy of the sampler, and the run laid out step by step."""
    chosen = SAMPLERS[sampler]() if isinstance(sampler, str) and sampler in SAMPLERS else sampler
    if not isinstance(chosen, Sampler) or type(chosen) is Sampler:
        raise ValueError(f"sampler={sampler!r} is not known; choose one of {', '.join(SAMPLERS)} or pass a Sampler object.")
    plan = SCHEDULES[schedule]() if isinstance(schedule, str) and schedule in SCHEDULES else schedule
    if not isinstance(plan, Schedule):
        raise ValueError(f"schedule={schedule!r} is not known; choose one of {', '.join(SCHEDULES)} or pass a Schedule object.")
    chosen = dataclasses.replace(chosen)  # type: ignore[type-var]  # every sampler is a dataclass
    chosen.check()
    rule, fix = "a share of the steps with 0 <= burn_in < 1", "0.5 is the default"
    timeline = plan.timeline(
        n_steps=check_integer("n_steps", n_steps, low=1, fix="a chain needs at least one step"),
        steps_per_epoch=1.0,
        burn_in=check_real("burn_in", burn_in, rule=rule, fix=fix, high=1.0, open_high=True),
        n_draws=check_integer("n_draws", n_draws, low=1, fix="1000 is the default"),
    )
    return chosen, timeline.last_only() if chosen.law == "optimiser" else timeline


def _check_controls(sampler: Sampler, timeline: Timeline, eps: Coefficient, tau: Coefficient) -> None:
    """Raise ValueError if a step size is not positive, or a temperature is negative or is 0 where the sampler has no such run."""
    if not bool((torch.as_tensor(eps) > 0).all()):
        raise ValueError(f"step_size={eps!r} must be > 0 for every chain; start with 0.1 / (largest curvature of the potential).")
    least = float(torch.as_tensor(tau).min())
    if least < 0:
        raise ValueError(f"temperature={tau!r} must be >= 0 for every chain; 1 samples exp(-U).")
    if least * timeline.temperature.min() == 0 and not sampler.allows_zero_temperature:
        raise ValueError(
            f"temperature={tau!r} with this schedule reaches 0, where {type(sampler).__name__} is not defined; keep both positive, "
            "or use another schedule."
        )


def _check_alive(result: RunResult, sampler: Sampler, eps: Coefficient) -> None:
    """Raise ValueError that names chains and step if any chain stopped being finite, or ran away."""
    dead = np.flatnonzero(result.diverged_at.cpu().numpy() >= 0)
    if not len(dead):
        return
    step = int(result.diverged_at[dead.tolist()].min())
    names = f"{len(dead)} of {len(result.diverged_at)} chains (the first of them: {dead[:5].tolist()})"
    if bool(result.ran_away[dead.tolist()].all()):
        raise ValueError(f"{names} diverged at step {step}: {sampler.runaway_advice}.")
    raise ValueError(
        f"{names} stopped being finite at step {step}; try a step_size below {_least(eps, dead):g}, or look for NaN in the "
        "potential."
    )


def _least(value: Coefficient, chains: NDArray[np.int64]) -> float:
    """Return the least of a coefficient's values for some chains."""
    return float(value[chains.tolist()].min()) if isinstance(value, torch.Tensor) else value


def _column(name: str, value: Coefficient, theta: Theta) -> Coefficient:
    """Return a coefficient as a float, or as a float64 column on the device of the run."""
    rule = f"a finite number, or a finite tensor of shape ({len(theta)}, 1), one row per chain"
    if not isinstance(value, torch.Tensor):
        return check_real(name, value, rule=rule, fix="use a float", low=-math.inf)
    if value.shape != (len(theta), 1) or value.is_complex() or not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} must be {rule}, and is {_described(value)}.")
    return value.to(device=theta.device, dtype=torch.float64)


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    return f"{value!r} ({type(value).__name__})"


def _check_start(potential: FunctionPotential, theta0: Theta) -> None:
    """Raise ValueError if the potential or its gradient is not finite, or has the wrong shape, at the start."""
    value, gradient = potential.value_and_grad(theta0)
    bad = ~(torch.isfinite(value) & torch.isfinite(gradient).all(dim=1))
    if bool(bad.any()):
        chains = torch.nonzero(bad)[:5, 0].tolist()
        raise ValueError(
            f"potential or its gradient is not finite at theta0 for chains {chains} (at most five are named): start where both are."
        )
