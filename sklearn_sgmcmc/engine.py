"""The one loop in which all samplers run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from tqdm.auto import tqdm

from sklearn_sgmcmc._typing import Coefficient, Noise, PerChain, Potential, Theta
from sklearn_sgmcmc.draws import Draws
from sklearn_sgmcmc.samplers._base import Sampler
from sklearn_sgmcmc.schedules import Timeline
from sklearn_sgmcmc.step_control import Caution, StepControl

LOOKS = 200
"""How often in a run the potential is recorded and divergence is looked for: the only host synchronisations of the loop."""


def _keep(theta: Theta) -> Theta:
    return theta


class Target(Protocol):
    """What a stage samples: a potential over P parameters once a minibatch is bound."""

    @property
    def n_params(self) -> int:
        """P."""

    def bind(self, batch: Any) -> Potential:
        """Return the potential seen through a minibatch."""


@dataclass(frozen=True)
class Stage:
    """A part of a run with one sampler and one posterior.

    ``timeline`` is what the schedule decides for its steps; ``carry`` maps the parameters at the end of the last stage to those
    at the start of this one (momenta are drawn anew); ``caution`` says how steps are capped, None that they are not.
    """

    sampler: Sampler
    timeline: Timeline
    posterior: Target
    step_size: Coefficient
    temperature: Coefficient
    carry: Callable[[Theta], Theta] = _keep
    caution: Caution | None = None

    def step_control(self) -> StepControl | None:
        """Check that the sampler is defined all along the stage, and return what caps its steps, if anything does."""
        largest, least = (torch.as_tensor(value) for value in (self.step_size, self.temperature))
        self.sampler.check_run(
            float(largest.max()) * float(self.timeline.step_size.max()),
            float(least.min()) * float(self.timeline.temperature.min()),
        )
        limit = self.sampler.stability_limit
        return None if self.caution is None or limit is None else StepControl(self.step_size, limit, self.caution)


@dataclass(frozen=True)
class RunResult:
    """What a run leaves.

    draws : (S, C, P), on the device of the run; NaN where the run ended early.
    potential_curve : (about LOOKS, C) float64: U of the current minibatch, an estimate of the full-data U; first at the start.
    diverged_at : (C,) step by which a chain was seen not to be finite, or -1.
    step_size : (C, 1) float64, the step size before the schedule's multiplier at the end of the run.
    """

    draws: torch.Tensor
    potential_curve: torch.Tensor
    diverged_at: torch.Tensor
    step_size: torch.Tensor


class _Watch:
    """Record the potential and look for chains that are no longer finite."""

    def __init__(self, n_steps: int, n_chains: int, device: torch.device, verbose: int) -> None:
        self.n_steps = n_steps
        self.every = max(1, n_steps // LOOKS)
        self.all_diverged = False
        self.curve: list[PerChain] = []
        self.diverged_at = torch.full((n_chains,), -1, dtype=torch.int64, device=device)
        self.bar = tqdm(total=n_steps, desc="sampling", unit="step", disable=verbose == 0)

    def due(self, step: int) -> bool:
        """Return whether to look after ``step`` steps."""
        return step % self.every == 0 or step == self.n_steps

    def look(self, step: int, theta: Theta, value: PerChain) -> bool:
        """Note the state after ``step`` steps; return whether any chain is still alive."""
        self.curve.append(value)
        finite = torch.isfinite(value) & torch.isfinite(theta).all(dim=1)
        self.diverged_at = torch.where((self.diverged_at < 0) & ~finite, step, self.diverged_at)
        alive = self.diverged_at < 0
        self.bar.update(step - self.bar.n)
        if not self.bar.disable:
            self.bar.set_postfix_str(f"potential={float(value[alive].mean()):.4g}" if bool(alive.any()) else "diverged")
        self.all_diverged = not bool(alive.any())
        return not self.all_diverged


@torch.no_grad()
def run(stages: Sequence[Stage], theta: Theta, batches: Iterator[Any], noise: Noise, *, verbose: int = 0) -> RunResult:
    """Walk through the stages from ``theta`` (C, P) and return the draws they keep.

    Chains that stop being finite do not disturb the others; the run ends early when none is left.
    """
    n_steps = sum(len(stage.timeline) for stage in stages)
    n_draws = sum(int(stage.timeline.collect.sum()) for stage in stages)
    draws = Draws(n_draws, len(theta), stages[-1].posterior.n_params, dtype=theta.dtype, device=theta.device)
    watch = _Watch(n_steps, len(theta), theta.device, verbose)
    step = 0
    for stage in stages:
        theta = stage.carry(theta)
        state = None
        batch: Any = None
        cut = stage.step_control()
        for control in stage.timeline.controls(stage.step_size, stage.temperature):
            last, batch = batch, next(batches)
            if batch is not last or last is None:  # at full batch the same rows come at every step
                potential = stage.posterior.bind(batch)
            if cut is not None:
                control = cut(control, theta, potential, noise)
            if step == 0:
                watch.look(step, theta, potential.value(theta))
            if state is None:
                state = stage.sampler.init(theta, potential, noise, control)
            state = stage.sampler.step(state, potential, noise, control)
            theta = state.theta
            step += 1
            if control.collect:
                draws.add(theta)
            if watch.due(step) and not watch.look(step, theta, potential.value(theta)):
                break
        if watch.all_diverged:
            break
    watch.bar.close()
    factor = torch.ones(len(theta), 1, dtype=torch.float64, device=theta.device) if cut is None else cut.factor()
    return RunResult(draws.values, torch.stack(watch.curve), watch.diverged_at, factor * stage.step_size)
