"""What both estimators share: parameters, ``fit`` and the stored posterior."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Self, TypeAlias, cast

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_sgmcmc._checks import check_integer
from sklearn_sgmcmc.batches import RowSet, RowSource, dense_rows
from sklearn_sgmcmc.chains import ChainJob, sample_chains
from sklearn_sgmcmc.engine import RunResult, Stage
from sklearn_sgmcmc.estimators._rows import TrainingRows, column_scaling, training_rows
from sklearn_sgmcmc.estimators._settings import Settings, resolve
from sklearn_sgmcmc.likelihoods import Gaussian, HeteroscedasticNoise, HomoscedasticNoise, Likelihood
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.predictive import Ensemble, Statistic, row_chunks
from sklearn_sgmcmc.priors import Prior
from sklearn_sgmcmc.samplers._base import Sampler
from sklearn_sgmcmc.schedules import Schedule, Timeline
from sklearn_sgmcmc.step_control import CLOSE, NOISY
from sklearn_sgmcmc.threads import one_thread

Matrix: TypeAlias = Any
"""An array, sparse matrix or data frame of shape (n_rows, n_features)."""
Targets: TypeAlias = Any
"""An array or series of shape (n_rows,), or an array or frame of shape (n_rows, n_outputs)."""

LARGEST_WEIGHT = 1e15
"""Weights lie between this and its inverse: far beyond any count, and within the range of float32 when squared."""

HOT = 10.0
"""A chain whose mean potential lies above its start by more than this times tau P has diverged: 20 times too hot."""


@dataclass(eq=False, repr=False)
class BaseBayesianMLP(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Shared base; the parameters are described in the two estimators."""

    hidden_layer_sizes: int | Sequence[int] = (50,)
    _: KW_ONLY
    activation: str = "relu"
    sampler: str | Sampler = "sghmc"
    bias_factor: float | None = None
    temperature: float | None = None
    learning_rate: float | None = None
    schedule: str | Schedule = "constant"
    max_iter: int | None = None
    burn_in: float = 0.5
    n_draws: int = 50
    n_chains: int = 4
    batch_size: int | str = "auto"
    prior: str | Prior = "normal"
    prior_scale: float | None = None
    standardize: bool = True
    n_jobs: int | None = None
    device: str | torch.device = "auto"
    dtype: str = "float32"
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def fit(self, X: Matrix, y: Targets, sample_weight: ArrayLike | None = None) -> Self:
        """Sample the posterior of the network's weights given training rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Training inputs; finite.
        y : array of shape (n_rows,) or, for a regressor, (n_rows, n_outputs)
            Targets.
        sample_weight : array of shape (n_rows,), optional
            Counts: a row of weight k stands for k rows. Not negative, not all zero.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or an input lies outside its domain, or if every chain diverges.
        """
        before = self.__dict__.copy()
        try:
            with torch.inference_mode(False):
                self._fit(X, y, sample_weight)
        except BaseException:  # whatever happened, the old model stays whole
            self.__dict__ = before
            raise
        return self

    def _fit(self, X: Matrix, y: Targets, sample_weight: ArrayLike | None) -> None:
        settings = resolve(self)
        if scipy.sparse.issparse(y):
            raise ValueError("y is sparse: targets must be a dense array; use y.toarray().")
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], multi_output=True, y_numeric=self._y_numeric
        )
        target = self._encode(y)
        rows = training_rows(X, target, self._weights(X, y, sample_weight), settings.batch_size, self._full_batch_rows)
        _check_needs(settings, rows)
        self._x_scaling = column_scaling(rows.x, rows.weight, enabled=self.standardize)
        scaled_target, self._likelihood = self._observe(rows)
        self._network = MLP((X.shape[1], *settings.hidden, self._likelihood.n_outputs), settings.activation)
        posterior = Posterior(self._network, self._likelihood, settings.prior, float(len(rows.weight)), rows.n_data)
        source = rows.source(self._x_scaling, scaled_target, settings.dtype, settings.device)
        job = self._job(settings, rows, posterior, source)
        result = sample_chains(job, settings.n_jobs)
        alive = _alive(settings, posterior, job, result, rows.n_data)
        self._store(settings, rows, job, result, alive)
        _check_core(settings, job, result.step_size[alive], rows.n_data)
        self._review(rows)

    # --- what a subclass says about its targets ---------------------------------------------------------------------------

    _y_numeric = False
    _full_batch_rows = 1000

    def _encode(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the targets as columns (n, k), unscaled, and remember how to go back."""
        raise NotImplementedError

    def _observe(self, rows: TrainingRows) -> tuple[NDArray[np.float64], Likelihood]:
        """Return the targets as they are sampled, and the observation model."""
        raise NotImplementedError

    def _review(self, rows: TrainingRows) -> None:
        """Warn of what the fitted model itself shows to be wrong."""

    # --- from parameters to a run ------------------------------------------------------------------------------------------

    def _weights(self, X: Any, y: NDArray[Any], sample_weight: ArrayLike | None) -> NDArray[np.float64]:
        """Return one weight per row, (n,) float64."""
        if sample_weight is None:
            return np.ones(X.shape[0])
        if isinstance(sample_weight, numbers.Real):
            sample_weight = np.full(X.shape[0], sample_weight)
        weight = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight", ensure_min_samples=0)
        if weight.ndim != 1:
            raise ValueError(f"sample_weight has shape {weight.shape}: it must be 1D, one weight per row of X.")
        check_consistent_length(X, weight)
        if weight.min() < 0:
            raise ValueError(f"sample_weight has the negative value {weight.min()}: weights are counts, make them >= 0.")
        if not weight.any():
            raise ValueError("sample_weight is zero for every row: give at least one row a positive weight.")
        if weight.max() > LARGEST_WEIGHT or weight[weight > 0].min() < 1 / LARGEST_WEIGHT:
            raise ValueError(
                f"sample_weight reaches from {weight[weight > 0].min():.3g} to {weight.max():.3g}: weights are counts between "
                f"{1 / LARGEST_WEIGHT:g} and {LARGEST_WEIGHT:g}; bring them near 1."
            )
        return np.asarray(weight)

    def _job(self, settings: Settings, rows: TrainingRows, posterior: Posterior, source: RowSource) -> ChainJob:
        """Lay out the run."""
        n_rows = len(rows.weight)
        n_steps = settings.n_steps(n_rows, rows.batch_size)
        timeline = settings.schedule.timeline(
            n_steps=n_steps,
            steps_per_epoch=n_rows / rows.batch_size,
            burn_in=settings.burn_in,
            n_draws=settings.n_draws,
        )
        if not settings.sampler.allows_zero_temperature and settings.temperature * timeline.temperature.min() == 0:
            raise ValueError(
                f"temperature={settings.temperature} with schedule={settings.schedule!r} reaches 0, where "
                f"{type(settings.sampler).__name__} is not defined; keep both positive."
            )
        if settings.sampler.law == "optimiser":
            timeline = timeline.last_only()
        elif timeline.collect.sum() < settings.n_draws:
            warnings.warn(
                f"n_draws={settings.n_draws} draws per chain were asked for, and {int(timeline.collect.sum())} kept: only so many "
                f"of the {n_steps} steps come after burn-in. Increase max_iter or lower n_draws.",
                ConvergenceWarning,
                stacklevel=3,
            )
        stages = _stages(
            settings, timeline, posterior, settings.learning_rate / settings.unit(rows.n_data), full_batch=n_rows == rows.batch_size
        )
        random = check_random_state(self.random_state)
        return ChainJob(
            stages=stages,
            source=source,
            row_set=RowSet(0, n_rows),
            batch_size=rows.batch_size,
            independent=settings.sampler.needs_independent_batches,
            initial_scale=cast(Posterior, stages[0].posterior).initial_scale(),
            n_chains=settings.n_chains,
            entropy=tuple(random.randint(np.iinfo(np.int32).max, size=4).tolist()),
            device=settings.device,
            dtype=settings.dtype,
            verbose=settings.verbose,
        )

    def _store(self, settings: Settings, rows: TrainingRows, job: ChainJob, result: RunResult, alive: torch.Tensor) -> None:
        """Keep the draws of the chains that lived, as plain numpy."""
        n_steps = sum(len(stage.timeline) for stage in job.stages)
        rates = settings.unit(rows.n_data) * result.step_size[alive, 0].cpu().numpy()
        rates[np.isclose(rates, settings.learning_rate, rtol=1e-12)] = settings.learning_rate
        self.draws_ = np.ascontiguousarray(result.draws[:, alive].float().cpu().numpy())
        self.potential_curve_ = result.potential_curve[:, alive].cpu().numpy()
        self.learning_rate_ = rates if (rates != rates[0]).any() else float(rates[0])
        if len(self.draws_) > 1 and (self.draws_ == self.draws_[0]).all(axis=(0, 2)).any():
            seen = "is so small, or the schedule makes it so small, that a chain does not move: all its draws are equal"
            advice = "Increase it, or decay it less"
            if hasattr(result.state, "accepted") and bool((result.state.accepted[alive] == 0).any()):
                seen, advice = "is so large that a chain accepts no proposal: all its draws are equal", "Decrease it"
            warnings.warn(f"learning_rate={self.learning_rate_} {seen}. {advice}.", ConvergenceWarning, stacklevel=4)
        self._threshold, self._prune = _threshold(cast(Posterior, job.stages[-1].posterior))
        self.effective_temperature_ = _effective_temperature(settings, job.stages[-1].timeline)
        self.n_steps_ = n_steps
        self.n_iter_ = settings.epochs(len(rows.weight), rows.batch_size, n_steps)

    @property
    def keep_mask_(self) -> NDArray[np.bool_]:
        """Which parameters of each draw are kept, shaped like ``draws_``: those that the prior's spike does not claim."""
        return np.asarray(np.abs(self.draws_) >= self._spike_threshold("keep_mask_"))

    @property
    def sparsity_(self) -> float:
        """Share of connection weights that are kept, biases not counted, averaged over draws; in [0, 1]."""
        columns = np.flatnonzero(self._network.layout().is_weight.numpy())
        return float(np.mean(np.abs(self.draws_[..., columns]) >= self._spike_threshold("sparsity_")[columns]))

    def _spike_threshold(self, name: str) -> NDArray[np.float32]:
        """Return the prior's thresholds; raise AttributeError if there are none."""
        threshold: NDArray[np.float32] | None = self.__dict__.get("_threshold")
        if threshold is None:
            raise AttributeError(
                f"{name} is there only after a fit with a prior that has a spike: use prior='spike_slab' or 'prior_switch'."
            )
        return threshold

    # --- predictions ---------------------------------------------------------------------------------------------------------

    def _ensemble(self) -> Ensemble:
        """Return the network at all stored draws, in (draw, chain) order, pruned if the prior says so."""
        draws = self.draws_.reshape(-1, self.draws_.shape[2])
        return Ensemble(self._network, draws, self._threshold if self._prune else None)

    def _inputs(self, X: Matrix) -> Any:
        """Check the inputs of a prediction."""
        check_is_fitted(self)
        return validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])

    def _scaled(self, X: Any, rows: slice) -> NDArray[np.floating]:
        """Return rows of checked inputs, scaled as in ``fit``, in their own dtype."""
        return self._x_scaling.apply(dense_rows(X, rows), X.dtype)

    def _moments(self, X: Any, statistic: Statistic) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean and variance over draws of a statistic: two (n_rows, columns) float64 arrays."""
        ensemble = self._ensemble()
        with one_thread():
            parts = [ensemble.moments(self._scaled(X, rows), statistic) for rows in row_chunks(X.shape[0])]
        mean, variance = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _finite(mean), _finite(variance)

    def _draw_values(
        self, X: Any, statistic: Statistic, n_draws: int | None, random_state: int | np.random.RandomState | None
    ) -> NDArray[np.float64]:
        """Return a statistic at some or all draws, (n_draws, n_rows, columns) float64."""
        ensemble = self._ensemble()
        stored = len(ensemble.draws)
        if n_draws is not None:
            n_draws = check_integer("n_draws", n_draws, low=1, fix=f"None returns all {stored} stored draws")
            if n_draws > stored:
                raise ValueError(f"n_draws={n_draws} exceeds the {stored} stored draws; ask for at most that many.")
            random = check_random_state(random_state)
            ensemble = ensemble.subset(random.choice(stored, size=n_draws, replace=False))
        return np.concatenate([self._values(ensemble, X, statistic, rows) for rows in row_chunks(X.shape[0])], axis=1)

    def _values(self, ensemble: Ensemble, X: Any, statistic: Statistic, rows: slice) -> NDArray[np.float64]:
        """Return a statistic at every draw of an ensemble for some rows, (M, n, columns) float64."""
        with one_thread():
            return _finite(ensemble.values(self._scaled(X, rows), statistic))

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit has succeeded."""
        return hasattr(self, "draws_")

    def __sklearn_tags__(self) -> Any:
        """Accept sparse input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _effective_temperature(settings: Settings, timeline: Timeline) -> float | None:
    """Return the temperature at which the kept draws were made, None if there is no single number."""
    multipliers = np.unique(timeline.temperature[timeline.collect])
    return settings.sampler.effective_temperature(settings.temperature * float(multipliers[0])) if len(multipliers) == 1 else None


def _check_needs(settings: Settings, rows: TrainingRows) -> None:
    """Raise ValueError if the sampler needs all rows at every step and does not get them."""
    if "full_batch" in settings.sampler.needs and rows.batch_size < len(rows.weight):
        raise ValueError(
            f"batch_size={settings.batch_size} is less than the {len(rows.weight)} training rows, and "
            f"{type(settings.sampler).__name__} needs all of them at every step; use batch_size='auto'."
        )


def _stages(
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
            step_size=step_size if owned else min(step_size, _core_limit(target, part, settings.temperature)),
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


def _core_limit(posterior: Posterior, timeline: Timeline, temperature: float) -> float:
    """Return the largest step size, before the schedule's multiplier, that samples the prior's core rightly; inf without one.

    At every step eps / s0^2 <= 1 (the core's curvature) and sqrt(2 eps tau) <= s0 (the noise of one step stays within it).
    """
    strain = timeline.step_size * np.maximum(1.0, 2.0 * temperature * timeline.temperature)
    return posterior.density.narrowest_core**2 / float(strain.max())


def _check_core(settings: Settings, job: ChainJob, step_size: torch.Tensor, n_data: float) -> None:
    """Warn if the steps of the last stage are too long for the prior's core; ``step_size`` is that of each chain."""
    stage = job.stages[-1]
    density = cast(Posterior, stage.posterior).density
    limit = _core_limit(cast(Posterior, stage.posterior), stage.timeline, settings.temperature)
    excess = float(step_size.max()) / limit
    if settings.sampler.stability_limit is None or excess <= 1.0 + 1e-9:
        return
    core, wider = density.narrowest_core, 1.005 * math.sqrt(excess)
    rate = f"learning_rate<={0.995 * limit * settings.unit(n_data):.3g}"
    if density.threshold is None:
        message = (
            f"a prior as narrow as {settings.prior!r}: its steps leave the core. Use {rate}, or a scale {wider:.3g} times as wide."
        )
    else:
        message = (
            f"the prior's spike of scale {core:.3g}: its steps leave the spike, so that too few weights are found in it. "
            f"Use {rate}, or spike_scale>={wider * core:.3g}."
        )
    warnings.warn(
        f"learning_rate={settings.learning_rate} is too large for {message}",
        ConvergenceWarning,
        stacklevel=4,
    )


def _threshold(posterior: Posterior) -> tuple[NDArray[np.float32] | None, bool]:
    """Return the absolute values below which parameters belong to the prior's spike, (P,), and whether predictions prune them."""
    threshold = posterior.threshold()
    return None if threshold is None else threshold.float().numpy(), posterior.density.prune


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    """Return predictions that are finite; raise ValueError otherwise."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"X gives predictions that overflow {values.dtype.name}: it is far from the training rows, or y has extreme units. "
            "Check the units of X and y, and pass X as float64."
        )
    return values


def cast_finite(values: NDArray[Any], dtype: Any) -> NDArray[np.floating]:
    """Return values in another dtype; raise ValueError if they do not fit."""
    with np.errstate(over="ignore"):
        return _finite(values.astype(dtype))


def _alive(settings: Settings, posterior: Posterior, job: ChainJob, result: RunResult, n_data: float) -> torch.Tensor:
    """Return which chains did not diverge; warn of those that did, and raise ValueError if all did.

    At stationarity the mean of U exceeds its minimum by about tau P / 2, and the minimum is below U(0) and U(start). A prior with a
    spike is far higher at weights of ordinary size than at 0: that difference is allowed as well.
    """
    curve = result.potential_curve
    half = curve[len(curve) // 2 :].nan_to_num(torch.inf, torch.inf, torch.inf).mean(dim=0)
    zero = torch.zeros(1, posterior.n_params, dtype=job.dtype, device=job.device)
    with one_thread(), torch.no_grad():
        allowed = torch.maximum(posterior.full_value(zero, job.source), curve[0].nan_to_num(-torch.inf, -torch.inf, -torch.inf))
        ordinary = posterior.initial_scale().to(zero)[None]
        allowed = allowed + (posterior.prior_value(ordinary) - posterior.prior_value(zero)).clamp_min(0.0)
    hot = half > allowed + HOT * max(settings.temperature, 1.0) * posterior.n_params
    dead = hot | (result.diverged_at >= 0)
    n_dead = int(dead.sum())
    if n_dead == 0:
        return ~dead
    steps = result.diverged_at[result.diverged_at >= 0]
    when = f" by step {int(steps.min())}" if len(steps) else ""
    least = float(result.step_size[dead].min()) * settings.unit(n_data)
    used = f"learning_rate={settings.learning_rate}"
    if not settings.learning_rate_given:
        cut = f", cut to {least:.2g} by curvature" if least < settings.learning_rate * (1 - 1e-9) else ""
        used = f"learning_rate=None ({settings.learning_rate:g}, the default of {type(settings.sampler).__name__}{cut})"
    advice = min(least / 10, settings.sampler.default_learning_rate)
    message = f"{used} diverged{when} ({n_dead} of {settings.n_chains} chains); try learning_rate<={advice:.2g}."
    if bool(result.ran_away[dead].all()):
        message = f"{used} diverged{when} ({n_dead} of {settings.n_chains} chains): {settings.sampler.runaway_advice}."
    if n_dead == settings.n_chains:
        raise ValueError(message)
    warnings.warn(f"{message} The diverged chains were dropped.", ConvergenceWarning, stacklevel=4)
    return ~dead
