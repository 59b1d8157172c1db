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
from sklearn_sgmcmc.estimators._settings import Settings
from sklearn_sgmcmc.likelihoods import Gaussian, HeteroscedasticNoise, HomoscedasticNoise
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Prior
from sklearn_sgmcmc.schedules import Timeline
from sklearn_sgmcmc.step_control import CLOSE, NOISY


def lay_out(
    settings: Settings, timeline: Timeline, posterior: Posterior, step_size: float, *, full_batch: bool
) -> tuple[Stage, ...]:
    """Return the stages of a run: a new one begins where the prior changes and, after half of the burn-in, with a noise head."""
    warm_up = int(np.argmax(timeline.collect)) // 2 if isinstance(posterior.likelihood, HeteroscedasticNoise) else 0
    priors = _prior_steps(settings, timeline)
    owned = settings.learning_rate_given or settings.sampler.stability_limit is None
    stages: list[Stage] = []
    for start, stop in pairwise([*sorted({0, warm_up, *priors}), len(timeline)]):
        target = replace(posterior, prior=priors[max(step for step in priors if step <= start)])
        target = _homoscedastic(target) if start < warm_up else target
        part = timeline[start:stop]
        stage = Stage(
            sampler=settings.sampler,
            timeline=part,
            posterior=target,
            step_size=step_size if owned else min(step_size, core_limit(target, part, settings.temperature)),
            temperature=settings.temperature,
            caution=None if owned else CLOSE if target.likelihood.stiff or full_batch else NOISY,
        )
        if start == warm_up > 0:
            stage = replace(stage, carry=partial(_to_heteroscedastic, cast(Posterior, stages[-1].posterior)))
        stages.append(stage)
    return tuple(stages)


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


def _homoscedastic(posterior: Posterior) -> Posterior:
    """Return the posterior with one learned noise level per target in place of each noise output."""
    likelihood = HomoscedasticNoise(cast(HeteroscedasticNoise, posterior.likelihood).n_targets)
    network = replace(posterior.network, widths=(*posterior.network.widths[:-1], likelihood.n_outputs))
    return replace(posterior, network=network, likelihood=likelihood)


def _to_heteroscedastic(first: Posterior, theta: torch.Tensor) -> torch.Tensor:
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
