"""From a chunk of a stream to the steps of one call: N, the step size, and which states are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sklearn_sgmcmc._checks import check_real
from sklearn_sgmcmc._typing import Control, Theta
from sklearn_sgmcmc.batches import Batches, Minibatch, RowSet
from sklearn_sgmcmc.engine import RunResult, Stage, run
from sklearn_sgmcmc.estimators._resume import STREAM, LastState, Model, Stream
from sklearn_sgmcmc.estimators._rows import TrainingRows
from sklearn_sgmcmc.estimators._settings import Settings
from sklearn_sgmcmc.estimators._stages import core_limit, homoscedastic, to_heteroscedastic, warm_up
from sklearn_sgmcmc.likelihoods import HeteroscedasticNoise
from sklearn_sgmcmc.noise import BlockNoise, blocks_of, noise_generators, row_generators
from sklearn_sgmcmc.posterior import MinibatchPotential, Posterior
from sklearn_sgmcmc.schedules import Timeline
from sklearn_sgmcmc.step_control import CLOSE, NOISY, StepControl

SETTLED = 10
"""Memories after which samplers stop adapting to one fixed data set: draws from before are gone after twice as many steps."""
LEAST_SHARE = 1e-9
"""Share by which a step forgets at least, so that 1 - r keeps its digits: a drift may fade to 0 after huge gradients."""


class Chunk(NamedTuple):
    """The rows of one call, walked through in ``n_steps`` minibatches of equal size."""

    rows: TrainingRows
    n_steps: int

    @property
    def weight(self) -> float:
        """Weight of the rows of one step."""
        return self.rows.n_data / self.n_steps


def split(x: Any, target: NDArray[np.float64], weight: NDArray[np.float64], batch_size: int | None) -> Chunk:
    """Drop rows of weight zero, and split the rest into the fewest equal minibatches of at most ``batch_size`` rows."""
    keep = np.flatnonzero(weight > 0)
    if len(keep) < len(weight):
        x, target, weight = x[keep], target[keep], weight[keep]
    n_rows = len(weight)
    n_steps = -(-n_rows // min(n_rows, batch_size or n_rows))
    return Chunk(TrainingRows(x, target, weight, -(-n_rows // n_steps)), n_steps)


def check_total(n_total: Any, chunk: Chunk) -> float | None:
    """Return the total weight of the data set that a chunk is part of; None while tracking."""
    if n_total is None:
        return None
    rule, fix = "the total weight of the data set, > 0, or None", "None tracks a stream"
    total = check_real("n_total", n_total, rule=rule, fix=fix, open_low=True)
    if total < chunk.rows.n_data * (1 - 1e-9):
        raise ValueError(
            f"n_total={n_total!r} is less than the weight of this chunk alone, {chunk.rows.n_data:g}: give the number of rows (or "
            "the sum of the weights) of the whole data set."
        )
    return total


@dataclass(frozen=True)
class Walk:
    """The steps of one call, laid out.

    rows : endless minibatches of the chunk; ``potential`` is that of the first.
    step_size : (C, 1) epsilon. memory : the steps in which the slowest chain forgets.
    held : (S,) the steps of the draws that there are. stream : what there is to remember after the call.
    """

    settings: Settings
    chunk: Chunk
    potential: MinibatchPotential
    rows: Iterator[Minibatch]
    noise: BlockNoise
    state: Any
    timeline: Timeline
    step_size: torch.Tensor
    memory: int
    held: NDArray[np.int64]
    stream: Stream

    def run(self) -> RunResult:
        """Take the steps; raise KeyboardInterrupt if interrupted, whatever has been drawn: a call is taken whole or not at all."""
        settings = self.settings
        stage = Stage(settings.sampler, self.timeline, self.potential.posterior, self.step_size, settings.temperature)
        result = run([stage], self.state.theta, self.rows, self.noise, start=self.state)
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def law(self) -> str:
        """Return what the draws are draws of."""
        stream, N = self.stream, float(self.stream.n_data.mean())
        span = stream.steps - int(stream.draw_steps[0]) + 1
        drawn = f"draws of the last {span} steps"
        if stream.n_total is None:
            return f"tracking: the last {self.memory} steps or so, N = {N:.4g} rows by weight against one prior; {drawn}"
        seen = f", of which {stream.seen:.4g} were seen so far" if stream.seen < stream.n_total else ""
        return f"the posterior of one data set, N = {N:.4g} rows by weight{seen}; {drawn} of {stream.steps}"


def lay_out_chunk(
    settings: Settings, chunk: Chunk, target: NDArray[np.float64], last: LastState, n_total: float | None, n_held: int
) -> Walk:
    """Return the steps of a call over ``chunk``, from ``last`` on, where ``n_held`` draws are there."""
    before = last.stream
    if before is None or before.n_total != n_total:
        before = _begun(last, n_total, n_held)
    if settings.rate == "given":
        before = replace(before, factor=np.ones_like(before.factor))
    noise, batches = _random(settings, chunk, target, last)
    batch = next(batches)
    factor = torch.from_numpy(before.factor).to(settings.device)
    state = _state(settings, last, chunk, _n_data(before, chunk, settings.learning_rate * factor), batch, batches, noise)
    forget = _forget(settings, state, factor)
    n_data = _n_data(before, chunk, forget)
    potential = _posterior(settings, last.model, chunk, n_data).bind(batch, batches)

    memory = math.ceil(1.0 / float(forget.min()) - 1e-9)
    stream = _kept(settings, before, before.steps + chunk.n_steps, memory)
    stream = replace(stream, n_data=n_data.cpu().numpy(), seen=before.seen + chunk.rows.n_data)
    one = np.ones(chunk.n_steps)
    adapt = n_total is None or before.steps < SETTLED * memory
    collect = np.isin(np.arange(before.steps, stream.steps) + 1, stream.draw_steps)
    timeline = Timeline(one, one, np.full(chunk.n_steps, adapt), collect)

    unit = 1.0 if settings.sampler.step_is_learning_rate else n_data
    step_size = torch.ones_like(n_data) * (settings.learning_rate / unit)
    if settings.rate != "given" and settings.sampler.stability_limit is not None:
        step_size = step_size.clamp(max=core_limit(potential.posterior, timeline, settings.temperature))
        step_size, stream = _capped(settings, step_size, stream, potential, state, noise, adapt=adapt)
    rows = chain([batch], batches)
    return Walk(settings, chunk, potential, rows, noise, state, timeline, step_size, memory, before.draw_steps, stream)


def _begun(last: LastState, n_total: float | None, n_held: int) -> Stream:
    """Return a stream before its first step: after nothing, a fit or a stream of another law; draws that are there are older."""
    one = np.ones((last.n_left, 1))
    n_data = last.n_data * one if last.stream is None else last.stream.n_data
    return Stream(n_total, n_data, 0, 0.0, np.arange(1 - n_held, 1), 1, 1, np.zeros(last.n_left, dtype=np.int64), one)


def _random(settings: Settings, chunk: Chunk, target: NDArray[np.float64], last: LastState) -> tuple[BlockNoise, Batches]:
    """Return the noise and the minibatches of a call, from random streams of its own: there is no generator to remember."""
    n_chains = last.n_left
    numbers = (*last.entropy, STREAM, last.calls + 1)
    noise = BlockNoise(noise_generators(numbers, blocks_of(n_chains), settings.device))
    source = chunk.rows.source(last.model.x_scaling, target, settings.dtype, settings.device)
    sets = [RowSet(0, chunk.rows.n_rows)] * n_chains
    whole = chunk.n_steps == 1 and last.state is not None  # needs no generator per chain
    generators = row_generators(numbers, range(1 if whole else n_chains), settings.device)
    return noise, Batches(source, sets, chunk.rows.batch_size, generators)


def _posterior(settings: Settings, model: Model, chunk: Chunk, n_data: torch.Tensor) -> Posterior:
    """Return the posterior that a chunk stands for: its mean gradient times N, and the prior once."""
    n_rows = n_data * (chunk.rows.n_rows / chunk.rows.n_data)
    return Posterior(model.network, model.likelihood, settings.prior, n_rows, n_data)


def _n_data(before: Stream, chunk: Chunk, forget: torch.Tensor) -> torch.Tensor:
    """Return N, (C, 1): the given total or, while tracking, the sum of all weights, each times 1 - r for every later step.

    N <- (1 - r) min(N, w / r) + w at a step of weight w: at most the w / r of a long stream of such steps, also after a fit.
    """
    if before.n_total is not None:
        return torch.full_like(forget, before.n_total)
    long = chunk.weight / forget
    kept = (1.0 - forget) ** chunk.n_steps
    return kept * torch.minimum(torch.from_numpy(before.n_data).to(forget), long) + (1.0 - kept) * long


def _state(
    settings: Settings,
    last: LastState,
    chunk: Chunk,
    n_data: torch.Tensor,
    batch: Minibatch,
    batches: Batches,
    noise: BlockNoise,
) -> Any:
    """Return the sampler's state to go on from: that of the last call, or a fresh one at its parameters or at first ones."""
    posterior = _posterior(settings, last.model, chunk, n_data)
    if last.state is None:
        theta = _first_parameters(settings, posterior, batches, noise)
    else:
        state = last.tensors(settings.device)
        if last.sampler == repr(settings.sampler) and state.theta.dtype == settings.dtype:
            return state
        theta = state.theta.to(settings.dtype)
    control = Control(settings.learning_rate / n_data, settings.temperature, adapt=True, collect=False)
    return settings.sampler.init(theta, posterior.bind(batch), noise, control)


def _first_parameters(settings: Settings, posterior: Posterior, batches: Batches, noise: BlockNoise) -> Theta:
    """Return random parameters, taken to a mode of the first chunk by the warm-up; a noise head begins with one level."""
    with_head = isinstance(posterior.likelihood, HeteroscedasticNoise)
    first = homoscedastic(posterior) if with_head else posterior
    scale = first.initial_scale().to(device=settings.device, dtype=settings.dtype)
    theta = noise(torch.empty(settings.n_chains, len(scale), dtype=settings.dtype, device=settings.device)) * scale
    n_rows = batches.row_sets[0].size
    stages = warm_up(posterior, n_rows, settings.first_steps(n_rows))
    if stages:
        theta = run(stages, theta, batches, noise).state.theta
    return to_heteroscedastic(first, theta) if with_head else theta


def _forget(settings: Settings, state: Any, factor: torch.Tensor) -> torch.Tensor:
    """Return r, (C, 1): the share of its distance to the chunk's optimum by which a parameter of curvature N moves in a step."""
    gain = settings.sampler.drift_gain(state)
    if isinstance(gain, torch.Tensor):
        gain = gain.double().flatten(1).median(dim=1, keepdim=True).values
    share = (gain * settings.learning_rate * factor).nan_to_num(nan=1.0)  # of a chain that has diverged, as its next step will show
    return share.clamp(LEAST_SHARE, 1.0)


def _capped(
    settings: Settings,
    step_size: torch.Tensor,
    stream: Stream,
    potential: MinibatchPotential,
    state: Any,
    noise: BlockNoise,
    *,
    adapt: bool,
) -> tuple[torch.Tensor, Stream]:
    """Return the step sizes cut as the curvature demands, and the stream with what is known of it: per datum, as N changes."""
    limit, n_data = settings.sampler.stability_limit, torch.from_numpy(stream.n_data).to(settings.device)
    assert limit is not None
    control = StepControl(step_size, limit, CLOSE if potential.posterior.likelihood.stiff else NOISY)
    if stream.curvature is not None and stream.direction is not None:
        control.curvature = torch.from_numpy(stream.curvature).to(n_data) * n_data
        control.direction = torch.from_numpy(stream.direction).to(n_data) * n_data
        control.step, control.next_look = stream.looks
    cut = control(Control(step_size, settings.temperature, adapt, collect=False), state.theta, potential, noise, state)
    assert control.curvature is not None
    assert control.direction is not None
    lost = ~torch.isfinite(control.curvature)  # of a chain that has diverged, as its next step will show
    return torch.where(lost, step_size, cut.step_size), replace(
        stream,
        factor=torch.where(lost, 1.0, control.factor()).cpu().numpy(),
        curvature=(control.curvature / n_data).cpu().numpy(),
        direction=(control.direction / n_data).to(state.theta.dtype).cpu().numpy(),
        looks=(control.step, control.next_look),
    )


# --- which states are kept -----------------------------------------------------------------------------------------------------


def _kept(settings: Settings, before: Stream, total: int, memory: int) -> Stream:
    """Return the stream after ``total`` steps, with those of the draws to hold."""
    held, now = before.draw_steps, before.steps
    if settings.sampler.law == "optimiser":
        return replace(before, steps=total, draw_steps=np.array([total]))
    if before.n_total is None:
        every = -(-memory // settings.n_draws)
        return replace(before, steps=total, draw_steps=recent_steps(held, now, total, every, memory, settings.n_draws))
    kept, every = latter_steps(held, now, total, before.every, settings.n_draws)
    return replace(before, steps=total, draw_steps=kept, every=every)


def recent_steps(held: NDArray[np.int64], now: int, total: int, every: int, window: int, n_draws: int) -> NDArray[np.int64]:
    """Return the steps of the draws to hold while tracking: from the last ``window`` steps, ``every`` apart; at least one."""
    kept = np.concatenate([held, _due(held, now, total, every)])
    recent = kept > total - window
    recent[-1:] = True
    return kept[recent][-n_draws:]


def latter_steps(held: NDArray[np.int64], now: int, total: int, every: int, n_draws: int) -> tuple[NDArray[np.int64], int]:
    """Return the steps of the draws to hold, from the last half of all, and their distance: it doubles when they are too many."""
    kept = np.concatenate([held, _due(held, now, total, every)])
    latter = kept > total / 2
    latter[-1:] = True
    kept = kept[latter]
    while len(kept) > n_draws:
        kept, every = kept[::-1][::2][::-1], 2 * every
    return kept, every


def _due(held: NDArray[np.int64], now: int, total: int, every: int) -> NDArray[np.int64]:
    """Return the steps after ``now``, up to ``total``, that lie ``every`` apart from the last held one on."""
    first = now + 1 if not len(held) else max(now + 1, int(held[-1]) + every)
    return np.arange(first, total + 1, every, dtype=np.int64)
