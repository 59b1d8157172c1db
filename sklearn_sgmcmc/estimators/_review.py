"""What a finished run shows: which chains lived, what can be measured of them, and what to warn of."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from sklearn_sgmcmc._checks import clear_of
from sklearn_sgmcmc.chains import ChainJob, independent_batches
from sklearn_sgmcmc.diagnostics import (
    LEAST_DRAWS,
    NOISE_BATCHES,
    Measured,
    compared_potential,
    full_potential,
    gradient_variance,
    noise_ratio,
    one_law,
    potential_draws,
    r_hat,
)
from sklearn_sgmcmc.engine import RunResult
from sklearn_sgmcmc.estimators._settings import Settings
from sklearn_sgmcmc.estimators._stages import core_limit
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.predictive import Statistic
from sklearn_sgmcmc.priors import HierarchicalNormal
from sklearn_sgmcmc.samplers._base import map_state
from sklearn_sgmcmc.schedules import Timeline

HOT = 10.0
"""A chain whose mean potential lies above its start by more than this times tau P has diverged: 20 times too hot."""

UNMIXED = 1.1
"""R-hat of predictions and noise levels beyond which chains are said not to have mixed."""
POTENTIAL_UNMIXED = 1.3
"""That of the potential: it counts all weights, also along directions that change no prediction and take far longer."""
NOISY_INDEPENDENT, NOISY_RESHUFFLED = 0.1, 0.4
"""Median gradient-noise ratio that widens the posterior by 5 % under independently drawn and under reshuffled batches."""
LONGEST = 10
"""Largest factor by which a longer run is advised."""


class Quantity(NamedTuple):
    """Something that chains can be compared by: a statistic of the network's outputs with one column per label.

    ``axis`` says what the labels are; a quantity that is not ``per_row`` is the same for all rows.
    """

    name: str
    axis: str
    labels: list[Any]
    per_row: bool
    statistic: Statistic

    def names(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the name of each value, rows first."""
        columns = [self.name if len(self.labels) == 1 else f"{self.name} of {self.axis} {label}" for label in self.labels]
        return [f"{column}, reference row {row}" for row in rows for column in columns] if self.per_row else columns


class Compared(NamedTuple):
    """Quantities by name, and their values at all draws, (S, C, Q)."""

    names: list[str]
    values: NDArray[np.float64]


def effective_temperature(settings: Settings, timeline: Timeline) -> float | None:
    """Return the temperature at which the kept draws were made, None if there is no single number."""
    multipliers = np.unique(timeline.temperature[timeline.collect])
    return settings.sampler.effective_temperature(settings.temperature * float(multipliers[0])) if len(multipliers) == 1 else None


def core_message(settings: Settings, job: ChainJob, step_size: torch.Tensor, n_data: float) -> str | None:
    """Return what to say if the steps of the last stage are too long for the prior's core; ``step_size`` is that of each chain."""
    stage = job.stages[-1]
    density = cast(Posterior, stage.posterior).density
    limit = core_limit(cast(Posterior, stage.posterior), stage.timeline, settings.temperature)
    excess = float(step_size.max()) / limit
    if settings.sampler.stability_limit is None or excess <= 1.0 + 1e-9:
        return None
    core, wider = density.narrowest_core, 1.01 * math.sqrt(excess)
    used = f"learning_rate={settings.learning_rate} is too large for"
    rate = f"learning_rate<={0.995 * limit * settings.unit(n_data):.3g}"
    if density.threshold is None:
        prior = f"a prior as narrow as {settings.prior!r}"
        return f"{used} {prior}: its steps leave the core. Use {rate}, or a scale {wider:.3g} times as wide."
    return (
        f"{used} the prior's spike of scale {core:.3g}: its steps leave the spike, so that too few weights are found in it. "
        f"Use {rate}, or spike_scale>={wider * core:.3g}."
    )


def cold_prior_message(settings: Settings, temperature: float | None) -> str | None:
    """Return what to say if an effective temperature below 1 draws the weights to the mode of a hierarchical prior.

    Its law of the norm r of a layer's P weights, r^(P - 1) (1 + r^2 / (df s^2))^(-(df + P) / (2 tau)), has its peak near
    r^2 = df s^2 tau / (1 - tau) at tau < 1, where that of a normal law has it near tau P s^2.
    """
    prior = settings.prior.phases[-1][1]
    if temperature is None or not 0 < temperature < 1 or not isinstance(prior, HierarchicalNormal):
        return None
    return (
        f"prior={prior!r} at effective temperature {temperature:.3g}: below 1 this prior draws all weights towards 0, where little "
        f"is learned from X. Use temperature={settings.temperature / temperature:.3g}, the posterior itself, or "
        "prior='fan_in_normal'."
    )


def spike_threshold(posterior: Posterior) -> tuple[NDArray[np.float32] | None, bool]:
    """Return the absolute values below which parameters belong to the prior's spike, (P,), and whether predictions prune them."""
    threshold = posterior.threshold()
    return None if threshold is None else threshold.float().numpy(), posterior.density.prune


def allowed_excess(settings: Settings, posterior: Posterior, zero: torch.Tensor) -> torch.Tensor:
    """Return how far U of a sound chain may lie above U(0); ``zero`` are parameters (C, P) of 0."""
    ordinary = posterior.initial_scale().to(zero)[None]
    of_spike = (posterior.prior_value(ordinary) - posterior.prior_value(zero[:1])).clamp_min(0.0)
    return of_spike + HOT * max(settings.temperature, 1.0) * posterior.n_params


def surviving_chains(
    settings: Settings, posterior: Posterior, job: ChainJob, result: RunResult, n_data: float, further: str
) -> tuple[torch.Tensor, str | None]:
    """Return which chains did not diverge and what to say of those that did, with ``further`` advice; raise ValueError if all did.

    At stationarity the mean of U exceeds its minimum by about tau P / 2, and the minimum is below U(0) and U(start). A prior with a
    spike is far higher at weights of ordinary size than at 0: that difference is allowed as well.
    """
    curve = result.potential_curve
    half = curve[len(curve) // 2 :].nan_to_num(torch.inf, torch.inf, torch.inf).mean(dim=0)
    zero = torch.zeros(1, posterior.n_params, dtype=job.dtype, device=job.device)
    with torch.no_grad():
        allowed = torch.maximum(posterior.full_value(zero, job.source), curve[0].nan_to_num(-torch.inf, -torch.inf, -torch.inf))
        hot = half > allowed + allowed_excess(settings, posterior, zero)
    dead = hot | (result.diverged_at >= 0) | ~torch.isfinite(result.draws).all(dim=2).all(dim=0)
    if not dead.any():
        return ~dead, None
    message = _divergence_message(settings, result, dead, n_data) + further
    if dead.all():
        if job.checkpoint is not None:
            job.checkpoint.remove()  # there is nothing to go on with
        raise ValueError(message)
    return ~dead, f"{message} The diverged chains were dropped."


def _divergence_message(settings: Settings, result: RunResult, dead: torch.Tensor, n_data: float) -> str:
    """Return which chains diverged, under which learning rate and by when, and what to try."""
    steps = result.diverged_at[result.diverged_at >= 0]
    when = f" by step {int(steps.min())}" if len(steps) else ""
    known = result.step_size[dead]  # the curvature at a state that is not finite, and so the step, is not known
    known = known[torch.isfinite(known)]
    least = float(known.min()) * settings.unit(n_data) if len(known) else settings.learning_rate
    rate = settings.learning_rate
    used = f"learning_rate={rate}"
    if settings.rate != "given":
        cut = f", cut to {clear_of(least, rate, digits=2)} by curvature" if least < rate * (1 - 1e-9) else ""
        used = f"learning_rate=None ({rate:g}, the default of {type(settings.sampler).__name__}{cut})"
    if settings.rate == "auto":
        used = f"learning_rate='auto' (found: {least:.2g})" if len(known) else "learning_rate='auto'"
    advice = min(least / 10, settings.sampler.default_learning_rate)
    which = f"{int(dead.sum())} of {len(dead)} chains{'' if dead.all() else _numbers(dead)}"
    if bool(result.ran_away[dead].all()):
        return f"{used} diverged{when} ({which}): {settings.sampler.runaway_advice}."
    return f"{used} diverged{when} ({which}); try learning_rate<={advice:.2g}."


def _numbers(chosen: torch.Tensor) -> str:
    """Return the numbers of up to eight chosen chains, counted from 0, to follow their count."""
    numbers = chosen.nonzero()[:, 0].tolist()
    return f": {', '.join(map(str, numbers[:8]))}{', ...' if len(numbers) > 8 else ''}"


def measure(settings: Settings, job: ChainJob, result: RunResult, alive: torch.Tensor) -> tuple[Measured, NDArray[np.float64]]:
    """Return what the rows and the last state tell of the chains that lived, and U at some of their draws, (S', C)."""
    stage = job.stages[-1]
    kept = np.flatnonzero(stage.timeline.collect)[: len(result.draws)]
    step_size, temperature = stage.timeline.step_size[kept], stage.timeline.temperature[kept] * settings.temperature
    compared, note = one_law(np.ones(len(kept)) if settings.schedule.periodic else step_size, temperature)
    if settings.sampler.law == "optimiser":
        note = "not compared: an optimiser keeps one state of each chain"
    state = None if result.state is None else map_state(result.state, lambda field: field[alive])
    chosen = potential_draws(len(kept), job.source.n_rows, result.n_steps * job.batch_size)
    with torch.no_grad():
        potential = full_potential(cast(Posterior, stage.posterior), job.source, result.draws[chosen][:, alive])
        eps = result.step_size[alive] * step_size.mean()
        ratio = _noise_ratio(settings, job, state, eps, float(temperature.mean()), result.n_steps)
    steps = result.diverged_at.tolist()
    dropped = tuple((chain, steps[chain]) for chain in (~alive).nonzero()[:, 0].tolist())
    facts = state_figures(settings, stage.timeline, state, float(temperature[-1]))
    return Measured(compared, note, chosen, ratio, dropped_chains=dropped, **facts), potential


def _noise_ratio(
    settings: Settings, job: ChainJob, state: Any, step_size: torch.Tensor, temperature: float, n_steps: int
) -> tuple[float, float] | None:
    """Return the median and maximum over chains and parameters of the gradient-noise ratio, None where no noise is injected."""
    if temperature == 0 or state is None:
        return None
    if job.batch_size >= job.row_set.size and not job.independent:
        return 0.0, 0.0
    least, most = NOISE_BATCHES
    n_batches = min(most, max(least, n_steps // 20))
    posterior = cast(Posterior, job.stages[-1].posterior)
    variance = gradient_variance(posterior, state.theta, independent_batches(job, len(state.theta)), n_batches)
    ratio = noise_ratio(settings.sampler, state, variance, step_size, temperature)
    return None if ratio is None else (float(ratio.median()), float(ratio.max()))


def noise_message(measured: Measured, learning_rate: float, *, independent: bool) -> str | None:
    """Return what to say if the noise of the minibatches widens the posterior.

    The median over parameters tells by how much standard deviations grow on average. The largest ratio belongs to a few parameters,
    as a rule output biases, and lies above 1 in ordinary runs.
    """
    limit = NOISY_INDEPENDENT if independent else NOISY_RESHUFFLED
    if measured.noise_ratio is None or measured.noise_ratio[0] <= limit:
        return None
    ratio = measured.noise_ratio[0]
    seen = clear_of(ratio, limit, digits=2)
    how = "" if independent else " if batches were drawn independently, and by less as they are reshuffled"
    return (
        f"The noise of the minibatches widens the posterior: the gradient-noise ratio is {seen} (median over parameters, "
        f"limit {limit:g}), which multiplies standard deviations by {math.sqrt(1 + ratio):.3g}{how}. "
        f"Use learning_rate<={0.95 * learning_rate * limit / ratio:.2g} or a larger batch_size."
    )


def state_figures(settings: Settings, timeline: Timeline, state: Any, temperature: float) -> dict[str, Any]:
    """Return the acceptance rate, kinetic temperature and friction of each chain, where the last state has them."""
    found = {}
    if hasattr(state, "accepted"):
        found["acceptance_rate"] = state.accepted[:, 0] / len(timeline)
    expected = settings.sampler.momentum_variance(temperature)
    if expected and hasattr(state, "momentum"):
        found["kinetic_temperature"] = state.momentum.double().square().mean(dim=1) / expected
    if hasattr(state, "friction"):
        found["friction"] = state.friction.double().mean(dim=1)
    return {name: value.double().cpu().numpy() for name, value in found.items()}


def mixing_message(
    measured: Measured, potential: NDArray[np.float64], shared: NDArray[np.floating], of_rows: NDArray[np.floating], epochs: int
) -> str | None:
    """Return what to say if the chains of a fit of so many epochs have not mixed, None if they have or too few draws can tell.

    ``shared`` (S, C, Q) are noise levels, each of which must have mixed; ``of_rows`` predictions, of which half must: single rows
    along a slow direction are no reason to warn.
    """
    of_potential = compared_potential(measured, potential)
    shared, of_rows = shared[measured.compared], of_rows[measured.compared]
    if len(of_rows) < LEAST_DRAWS or of_rows.shape[1] < 2:
        return None
    found = [
        ("of predictions (median)", _median(r_hat(of_rows)), UNMIXED),
        ("of the noise level", r_hat(shared), UNMIXED),
        ("of the potential", r_hat(of_potential) if len(of_potential) >= LEAST_DRAWS else np.array([]), POTENTIAL_UNMIXED),
    ]
    known = [(name, float(np.nanmax(value)), limit) for name, value, limit in found if not np.isnan(value).all()]
    factor = max((_longer(value, limit) for _, value, limit in known), default=1)
    if factor == 1:
        return None
    seen = ", ".join(f"{clear_of(value, limit)} {name} (limit {limit:g})" for name, value, limit in known if value > limit)
    return (
        f"The chains have not mixed: R-hat is {seen}{_trend(of_potential)}. "
        f"Increase max_iter, from {epochs} to {factor * epochs} or so; summary() says more."
    )


def _longer(value: float, limit: float) -> int:
    """Return by how much a run with this R-hat must grow for the limit: R-hat^2 - 1 falls as one over its length."""
    return min(LONGEST, max(1, math.ceil((min(value, 10.0) ** 2 - 1) / (limit**2 - 1))))


def _median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of those that are defined, (1,)."""
    return np.array([np.nanmedian(values)]) if not np.isnan(values).all() else np.array([np.nan])


def _trend(potential: NDArray[np.float64]) -> str:
    """Return how U (S, C, 1) still moves from the first half of the draws to the second, if all chains move alike."""
    half = len(potential) // 2
    if half < 2:
        return ""
    change = potential[half:].mean(axis=(0, 2)) - potential[:half].mean(axis=(0, 2))
    if not ((change > 0).all() or (change < 0).all()):
        return ""
    return f"; U still {'rises' if change[0] > 0 else 'falls'}, by {abs(change.mean()):.3g} nats between the halves of the draws"
