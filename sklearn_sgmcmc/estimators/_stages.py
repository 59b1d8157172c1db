"""The stages of a run: a new one begins where the prior changes and where a noise head is added."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np
import torch

from sklearn_sgmcmc.engine import Stage
from sklearn_sgmcmc.estimators._settings import WARM_UP_ROWS, Settings
from sklearn_sgmcmc.likelihoods import Gaussian, HeteroscedasticNoise, HomoscedasticNoise
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Prior
from sklearn_sgmcmc.samplers.optimizers import Adam
from sklearn_sgmcmc.schedules import Timeline
from sklearn_sgmcmc.step_control import CLOSE, NOISY

LARGEST_FACTOR, LARGEST_NOISY_FACTOR = 100.0, 1.5
"""Largest multiple of the sampler's default learning rate that learning_rate="auto" takes, at full batch and with minibatches.
Chains follow flat directions to steps that a single steep minibatch then throws far off."""
LONG_SHARE = 0.5
"""Share of the stability limit that it takes for minibatches of a likelihood whose curvature the data bound, of a sampler whose law
is not the posterior's in any case: near the limit, that of the others would not be either."""
NOISE_RATIO = 0.4
"""Gradient-noise ratio that learning_rate="auto" accepts: see ``_review.NOISY_RESHUFFLED``."""
WARM_UP_RATE = 0.003
"""Adam's first learning rate; it falls to 0 by half a cosine."""


def lay_out(
    settings: Settings, timeline: Timeline, posterior: Posterior, step_size: float, *, n_rows: int, full_batch: bool
) -> tuple[Stage, ...]:
    """Return the stages of a run after those of its warm-up, if any.

    A new stage begins where the prior changes. A noise head is added after half of the burn-in: before it, and in the warm-up,
    there is one noise level per target.
    """
    simple = int(np.argmax(timeline.collect)) // 2 if isinstance(posterior.likelihood, HeteroscedasticNoise) else 0
    priors = _prior_steps(settings, timeline)
    stages = warm_up(replace(posterior, prior=priors[0]), n_rows, settings.warm_up_steps(n_rows, full_batch=full_batch))
    for start, stop in pairwise([*sorted({0, simple, *priors}), len(timeline)]):
        target = replace(posterior, prior=priors[max(step for step in priors if step <= start)])
        target = homoscedastic(target) if start < simple else target
        stage = _sampling(settings, timeline[start:stop], target, step_size, full_batch=full_batch)
        before = cast(Posterior, stages[-1].posterior) if stages else target
        if before.likelihood != target.likelihood:
            stage = replace(stage, carry=partial(to_heteroscedastic, before))
        stages.append(stage)
    return tuple(stages)


def lay_on(
    settings: Settings, timeline: Timeline, posterior: Posterior, step_size: float, *, n_rows: int, full_batch: bool
) -> tuple[Stage, ...]:
    """Return the one stage of a run that goes on from another: with the last prior, and all of the network from the start."""
    target = replace(posterior, prior=settings.prior.phases[-1][1])
    return (_sampling(settings, timeline, target, step_size, full_batch=full_batch),)


def warm_up(posterior: Posterior, n_rows: int, n_steps: int) -> list[Stage]:
    """Return the stage that takes each chain to a mode of its own: Adam on minibatches, with a rate that falls to 0."""
    if n_steps == 0:
        return []
    falling = 0.5 * (1.0 + np.cos(np.pi * np.arange(n_steps) / n_steps))
    never = np.zeros(n_steps, dtype=np.bool_)
    timeline = Timeline(falling, np.zeros(n_steps), ~never, never)
    target = replace(posterior, prior=posterior.prior.for_mode)
    target = homoscedastic(target) if isinstance(posterior.likelihood, HeteroscedasticNoise) else target
    return [Stage(Adam(), timeline, target, WARM_UP_RATE, 0.0, batch_size=min(n_rows, WARM_UP_ROWS))]


def _sampling(settings: Settings, timeline: Timeline, posterior: Posterior, step_size: float, *, full_batch: bool) -> Stage:
    """Return a stage of the sampler: the user's learning rate is taken as it stands, one to be found may exceed the default."""
    stage = Stage(settings.sampler, timeline, posterior, step_size, settings.temperature)
    if settings.rate == "given" or settings.sampler.stability_limit is None:
        return stage
    most = core_limit(posterior, timeline, settings.temperature)
    caution = CLOSE if posterior.likelihood.stiff or full_batch else NOISY
    kinetic = settings.sampler.momentum_variance(1.0) is not None  # longer steps let the noise of minibatches heat a momentum
    if settings.rate == "auto" and (full_batch or not kinetic) and not settings.sampler.runaway_advice:
        of_posterior = settings.sampler.effective_temperature(1.0) == 1.0
        share = LONG_SHARE if caution is NOISY and not of_posterior else caution.share
        ratio = math.inf if full_batch else NOISE_RATIO
        largest = LARGEST_FACTOR if full_batch else LARGEST_NOISY_FACTOR
        caution = replace(caution, share=share, largest=max(1.0, min(largest, most / step_size)), noise_ratio=ratio)
    return replace(stage, step_size=min(step_size, most), caution=caution)


def _prior_steps(settings: Settings, timeline: Timeline) -> dict[int, Prior]:
    """Return each prior of the run by the step at which it begins."""
    n_steps, first_draw = len(timeline), int(np.argmax(timeline.collect))
    priors = {int(share * n_steps): prior for share, prior in settings.prior.phases}
    last = max(priors)
    if last > first_draw:
        raise ValueError(
            f"prior.at={settings.prior.phases[-1][0]!r} changes the prior after step {last} of {n_steps}, and the first draw is "
            f"kept after step {first_draw + 1}: the change must come before it. "
            f"Use at<={math.floor(100 * first_draw / n_steps) / 100} or a larger burn_in."
        )
    return priors


def homoscedastic(posterior: Posterior) -> Posterior:
    """Return the posterior with one learned noise level per target in place of each noise output."""
    likelihood = HomoscedasticNoise(cast(HeteroscedasticNoise, posterior.likelihood).n_targets)
    network = replace(posterior.network, widths=(*posterior.network.widths[:-1], likelihood.n_outputs))
    return replace(posterior, network=network, likelihood=likelihood)


def to_heteroscedastic(first: Posterior, theta: torch.Tensor) -> torch.Tensor:
    """Turn each learned noise level into a noise output: zero weights, and the bias that gives the same sd everywhere."""
    weights, extra = first.split(theta)
    sd = cast(Gaussian, first.likelihood).noise_sd(extra, extra)[..., 0]
    return first.network.widen_outputs(weights, HeteroscedasticNoise.raw_from_sd(sd))


def core_limit(posterior: Posterior, timeline: Timeline, temperature: float) -> float:
    """Return the largest step size, before the schedule's multiplier, that samples the prior's core rightly; inf without one.

    At every step eps / s0^2 <= 1 (the core's curvature) and sqrt(2 eps tau) <= s0 (the noise of one step stays within it).
    """
    strain = timeline.step_size * np.maximum(1.0, 2.0 * temperature * timeline.temperature)
    return posterior.density.narrowest_core**2 / float(strain.max())
