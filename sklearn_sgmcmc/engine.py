"""The one loop in which all samplers run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from tqdm.auto import tqdm

from sklearn_sgmcmc._typing import Coefficient, Noise, PerChain, Potential, Snapshot, Theta
from sklearn_sgmcmc.batches import Batches
from sklearn_sgmcmc.checkpoint import Keeper, Resumable, Saved
from sklearn_sgmcmc.draws import DrawStore
from sklearn_sgmcmc.samplers._base import Sampler
from sklearn_sgmcmc.schedules import Timeline
from sklearn_sgmcmc.step_control import Caution, StepControl
from sklearn_sgmcmc.threads import flushed

LOOKS = 100
"""How often in a run the potential is recorded and divergence is looked for: the only host synchronisations of the loop."""
SHORTEST_WAIT = 5
"""Least number of steps between two looks: a look costs about as much as a step."""
PATIENCE = 10
"""Looks in a row at which a chain may be where its sampler has no law: early in a run a thermostat may overshoot."""


def _keep(theta: Theta) -> Theta:
    return theta


def _finite(theta: Theta) -> PerChain:
    """Return whether each chain is finite; several times as fast as to ask every parameter."""
    return torch.isfinite(theta.abs().amax(dim=1))


class Target(Protocol):
    """What a stage samples: a potential over P parameters once a minibatch is bound."""

    @property
    def n_params(self) -> int:
        """P."""

    def bind(self, batch: Any, following: Iterator[Any]) -> Potential:
        """Return the potential seen through a minibatch; ``following`` yields the ones after it."""


@dataclass(frozen=True)
class Stage:
    """A part of a run with one sampler and one posterior.

    ``timeline`` is what the schedule decides for its steps; ``carry`` maps the parameters at the end of the last stage to those
    at the start of this one (momenta are drawn anew); ``caution`` says how steps are capped, None that they are not; ``batch_size``
    is the stage's own number of rows per step, None that of the run.
    """

    sampler: Sampler
    timeline: Timeline
    posterior: Target
    step_size: Coefficient
    temperature: Coefficient
    carry: Callable[[Theta], Theta] = _keep
    caution: Caution | None = None
    batch_size: int | None = None

    def check(self) -> None:
        """Raise ValueError if the sampler is not defined all along the stage."""
        if self.posterior.n_params < self.sampler.min_params:
            raise ValueError(
                f"{type(self.sampler).__name__} needs at least {self.sampler.min_params} parameters, and there are "
                f"{self.posterior.n_params}: use another sampler."
            )
        self.sampler.check_run(
            self.step_size * float(self.timeline.step_size.max()), self.temperature * float(self.timeline.temperature.min())
        )

    def rows(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Return the minibatches of the stage: those of the run, or others of its own size from the same rows and generators."""
        return batches if self.batch_size is None else cast(Batches, batches).resized(self.batch_size)

    def step_control(self) -> StepControl | None:
        """Return what caps the steps, if anything does."""
        limit = self.sampler.stability_limit
        if self.caution is None or limit is None:
            return None
        return StepControl(self.step_size, limit, self.caution, self.sampler.gradient_noise_gain)


@dataclass(frozen=True)
class RunResult:
    """What a run leaves.

    draws : (S, C, P), on the device of the run; NaN where the run ended early, fewer than planned if it was interrupted.
    potential_curve : (about LOOKS, C) float64: U of the current minibatch, an estimate of the full-data U; first at the start.
    diverged_at : (C,) step by which a chain was seen not to be finite or to have run away, or -1.
    ran_away : (C,) whether a diverged chain was last seen where its sampler has no law.
    step_size : (C, 1) float64, the step size before the schedule's multiplier at the end of the run.
    state : the sampler's last state; None where parts of a run ended in different stages.
    n_steps : steps done.
    interrupted : whether the keyboard ended the run; then at least one draw had been kept.
    """

    draws: torch.Tensor
    potential_curve: torch.Tensor
    diverged_at: torch.Tensor
    ran_away: torch.Tensor
    step_size: torch.Tensor
    state: Any
    n_steps: int
    interrupted: bool


class _Watch:
    """Record the potential and look for chains that are no longer finite, or where their sampler has no law."""

    def __init__(
        self, n_steps: int, n_chains: int, device: torch.device, *, verbose: int, every_step: bool, steps_per_epoch: float
    ) -> None:
        self.n_steps = n_steps
        self.steps_per_epoch = steps_per_epoch
        self.every = max(SHORTEST_WAIT, n_steps // LOOKS)
        self.every_step = every_step
        self.all_diverged = False
        self.curve: list[PerChain] = []
        self.diverged_at = torch.full((n_chains,), -1, dtype=torch.int64, device=device)
        self.strays = torch.zeros(n_chains, dtype=torch.int64, device=device)
        self.ran_away = torch.zeros(n_chains, dtype=torch.bool, device=device)
        self.bar = tqdm(total=n_steps, desc="sampling", unit="step", disable=verbose == 0)

    def due(self, step: int) -> bool:
        """Return whether to look after ``step`` steps."""
        return step % self.every == 0 or step == self.n_steps

    def note(self, step: int, alive: PerChain) -> None:
        """Note the first step after which a chain is not alive, without asking the device for it."""
        new = (self.diverged_at < 0) & ~alive
        self.diverged_at = torch.where(new, step, self.diverged_at)
        self.ran_away |= new & (self.strays > 0)

    def after(self, step: int, theta: Theta) -> None:
        """Note chains whose parameters are not finite, if every step is to be watched."""
        if self.every_step:
            self.note(step, _finite(theta))

    def look(self, step: int, theta: Theta, value: PerChain, strayed: PerChain | None) -> bool:
        """Note the state after ``step`` steps; return whether any chain is still alive."""
        self.curve.append(value)
        if strayed is not None:
            self.strays = torch.where(strayed, self.strays + 1, 0)
        self.note(step, torch.isfinite(value) & _finite(theta) & (self.strays < PATIENCE))
        alive = self.diverged_at < 0
        self.bar.update(step - self.bar.n)
        if not self.bar.disable:
            epoch, last = (math.ceil(steps / self.steps_per_epoch) for steps in (step, self.n_steps))
            potential = f"{float(value[alive].mean()):.4g}" if bool(alive.any()) else "diverged"
            self.bar.set_postfix_str(f"epoch {epoch}/{last}, mean potential {potential}")
        self.all_diverged = not bool(alive.any())
        return not self.all_diverged

    def state(self) -> Snapshot:
        """Return what has been noted so far."""
        noted = {"diverged_at": self.diverged_at, "strays": self.strays, "ran_away": self.ran_away}
        return noted | {"curve": torch.stack(self.curve)}

    def restore(self, state: Snapshot) -> None:
        """Go on from where ``state`` was taken."""
        self.curve = list(state["curve"].unbind())
        self.diverged_at, self.strays, self.ran_away = state["diverged_at"], state["strays"], state["ran_away"]
        self.bar.initial = self.bar.n = (len(self.curve) - 1) * self.every


def _resume(
    stages: Sequence[Stage], saved: Saved, rows: Iterator[Any], noise: Noise, parts: Mapping[str, Resumable | None]
) -> tuple[Any, Timeline]:
    """Put the parts of a run back where they were; return the sampler's state and what is left of the stage.

    ``init`` tells the type of the state; what it takes from the streams is put back.
    """
    stage = stages[saved.stage]
    theta = saved.parts["sampler"]["theta"]
    control = next(stage.timeline.controls(stage.step_size, stage.temperature))
    like = stage.sampler.init(theta, stage.posterior.bind(next(rows), rows), noise, control)
    for name, part in parts.items():
        if part is not None:
            part.restore(saved.parts[name])
    done = saved.step - sum(len(before.timeline) for before in stages[: saved.stage])
    return type(like)(**saved.parts["sampler"]), stage.timeline[done:]


@torch.no_grad()
@flushed()
def run(
    stages: Sequence[Stage],
    theta: Theta,
    batches: Iterator[Any],
    noise: Noise,
    *,
    start: Any = None,
    verbose: int = 0,
    steps_per_epoch: float = 1.0,
    watch_every_step: bool = False,
    keeper: Keeper | None = None,
) -> RunResult:
    """Walk through the stages from ``theta`` (C, P) and return the draws they keep.

    ``start`` is the state of the first stage's sampler to go on from, with ``theta`` its parameters; None is a fresh one.
    Chains that stop being finite do not disturb the others; the run ends early when none is left. ``watch_every_step`` finds the
    very step at which a chain stopped being finite. A KeyboardInterrupt ends the run: with the draws kept so far, or, if there are
    none, by being raised. A ``keeper`` writes the run down now and then, and has it go on from there when it is started again;
    ``noise`` and ``batches`` must then be ``Resumable``.
    """
    n_steps = sum(len(stage.timeline) for stage in stages)
    draws = _draw_store(stages, theta)
    watch = _Watch(n_steps, len(theta), theta.device, verbose=verbose, every_step=watch_every_step, steps_per_epoch=steps_per_epoch)
    saved = None if keeper is None else keeper.read(theta.device)
    step, first = (0, 0) if saved is None else (saved.step, saved.stage)
    interrupted = False
    try:
        for number, stage in enumerate(stages[first:], first):
            stage.check()
            state, start = start, None
            rows, step_control, timeline = stage.rows(batches), stage.step_control(), stage.timeline
            parts: dict[str, Any] = {"noise": noise, "batches": batches, "own_batches": None if rows is batches else rows}
            parts |= {"step_control": step_control, "watch": watch, "draws": draws}
            if saved is None:
                theta = stage.carry(theta)
            else:
                state, timeline = _resume(stages, saved, rows, noise, parts)
                theta, saved = state.theta, None
            batch: Any = None
            for control in timeline.controls(stage.step_size, stage.temperature):
                last, batch = batch, next(rows)
                if batch is not last or last is None:  # at full batch the same rows come at every step
                    potential = stage.posterior.bind(batch, rows)
                if step_control is not None:
                    control = step_control(control, theta, potential, noise, state)
                if step == 0:
                    watch.look(step, theta, potential.value(theta), None)
                if state is None:
                    state = stage.sampler.init(theta, potential, noise, control)
                state = stage.sampler.step(state, potential, noise, control)
                theta = state.theta
                step += 1
                if control.collect:
                    draws.add(theta)
                watch.after(step, theta)
                if watch.due(step) and not watch.look(step, theta, potential.value(theta), stage.sampler.runaway(state)):
                    break
                if keeper is not None and step < n_steps and keeper.due():
                    keeper.write(number, step, state, parts)
            if watch.all_diverged:
                break
    except KeyboardInterrupt:
        if draws.count == 0 or state is None:
            raise
        interrupted = True
    finally:
        watch.bar.close()
    return _result(draws, watch, stage, step_control, state, step, interrupted=interrupted)


def _draw_store(stages: Sequence[Stage], theta: Theta) -> DrawStore:
    """Return an empty store for all draws of a run whose chains are like ``theta``; the last stage says how many parameters."""
    n_draws = sum(int(stage.timeline.collect.sum()) for stage in stages)
    return DrawStore(n_draws, len(theta), stages[-1].posterior.n_params, dtype=theta.dtype, device=theta.device)


def _result(
    draws: DrawStore, watch: _Watch, stage: Stage, step_control: StepControl | None, state: Any, step: int, *, interrupted: bool
) -> RunResult:
    """Return what a run leaves that has ended after ``step`` steps, the last of them in ``stage``."""
    alike = torch.ones(len(state.theta), 1, dtype=torch.float64, device=state.theta.device)
    factor = (alike if step_control is None else step_control.factor()) * getattr(state, "step_factor", 1.0)
    return RunResult(
        draws=draws.values[: draws.count] if interrupted else draws.values,
        potential_curve=torch.stack(watch.curve),
        diverged_at=watch.diverged_at,
        ran_away=watch.ran_away,
        step_size=factor * stage.step_size,
        state=state,
        n_steps=step,
        interrupted=interrupted,
    )
