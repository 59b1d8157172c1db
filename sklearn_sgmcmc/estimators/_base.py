"""What both estimators share: parameters and ``fit``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from typing import Any, ClassVar, Self, TypeAlias, cast

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from sklearn_sgmcmc._checks import check_flag
from sklearn_sgmcmc.batches import RowSet, RowSource, dense_rows
from sklearn_sgmcmc.chains import ChainJob, checkpointed, sample_chains
from sklearn_sgmcmc.checkpoint import Checkpoint
from sklearn_sgmcmc.diagnostics import QUICK, REFERENCE_ROWS, evenly
from sklearn_sgmcmc.engine import RunResult, Stage
from sklearn_sgmcmc.estimators._fitted import FittedMLP
from sklearn_sgmcmc.estimators._inputs import generator, validate_data
from sklearn_sgmcmc.estimators._resume import OWN, LastState, Model, last_state, law_key
from sklearn_sgmcmc.estimators._review import (
    core_message,
    effective_temperature,
    measure,
    mixing_message,
    noise_message,
    spike_threshold,
    surviving_chains,
)
from sklearn_sgmcmc.estimators._rows import TrainingRows, column_scaling, row_weights, training_rows, warn_of_small_weights
from sklearn_sgmcmc.estimators._settings import Settings, resolve
from sklearn_sgmcmc.estimators._stages import lay_on, lay_out
from sklearn_sgmcmc.likelihoods import Likelihood
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Prior
from sklearn_sgmcmc.samplers._base import Sampler
from sklearn_sgmcmc.schedules import Schedule, Timeline
from sklearn_sgmcmc.threads import isolated

Matrix: TypeAlias = Any
"""An array, sparse matrix or data frame of shape (n_rows, n_features)."""
Targets: TypeAlias = Any
"""An array or series of shape (n_rows,), or an array or frame of shape (n_rows, n_outputs)."""

BYSTANDERS = ("n_jobs", "verbose", "checkpoint")
"""Parameters that do not decide the draws."""


@dataclass(eq=False, repr=False)
class BaseBayesianMLP(FittedMLP):
    """Shared base; the parameters are described in the two estimators."""

    hidden_layer_sizes: int | Sequence[int] = (50,)
    _: KW_ONLY
    activation: str = "relu"
    sampler: str | Sampler = "auto"
    bias_factor: float | None = None
    temperature: float | None = None
    learning_rate: float | str | None = "auto"
    schedule: str | Schedule = "constant"
    warm_up: int | str = "auto"
    max_iter: int | None = None
    burn_in: float = 0.5
    n_draws: int = 50
    n_chains: int = 4
    batch_size: int | str = "auto"
    prior: str | Prior = "hierarchical_normal"
    prior_scale: float | None = None
    standardize: bool = True
    n_jobs: int | None = None
    device: str | torch.device = "auto"
    dtype: str = "float32"
    random_state: int | np.random.RandomState | None = None
    warm_start: bool = False
    verbose: int = 0
    checkpoint: str | PathLike[str] | None = None

    def fit(self, X: Matrix, y: Targets, sample_weight: ArrayLike | None = None) -> Self:
        """Sample the posterior of the network's weights given training rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            Training inputs; finite.
        y : array of shape (n_rows,) or, for a regressor, (n_rows, n_outputs)
            Targets.
        sample_weight : array of shape (n_rows,), optional
            Counts: a row of weight k stands for k rows, and their sum is the number of rows that the posterior has seen. Not
            negative, not all zero. Where only ratios are meant (importance weights, weights that sum to 1), pass w * n / w.sum().

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or an input lies outside its domain, or if every chain diverges.
        KeyboardInterrupt
            If interrupted; the draws made so far are then kept, unless there is none or several workers ran.
        """
        with all_or_nothing(self):
            with torch.inference_mode(False), isolated():
                interrupted, checkpoint = self._fit(X, y, sample_weight)
            for message in self._messages:
                warnings.warn(message, ConvergenceWarning, stacklevel=2)
        if interrupted:
            raise KeyboardInterrupt
        if checkpoint is not None:
            checkpoint.remove()
        return self

    def _fit(self, X: Matrix, y: Targets, sample_weight: ArrayLike | None) -> tuple[bool, Checkpoint | None]:
        """Fit, gather in ``_messages`` what to warn of, and return whether the keyboard interrupted the run, and its checkpoint."""
        self._messages = []
        settings = resolve(self)
        last: LastState | None = self.__dict__.get("_last") if check_flag("warm_start", self.warm_start) else None
        X, y = self._checked(X, y, reset=last is None)
        target = self._encode(y)
        weight = self._weights(X, y, sample_weight)
        warn_of_small_weights(weight)
        rows = training_rows(X, target, weight, settings.batch_size, self._full_batch_rows)
        self._learn_scales(rows)
        before = None if last is None else last.model.likelihood
        scaled_target, self._likelihood = self._observe(rows, rows.n_data, settings.hidden, before)
        self._network = MLP((X.shape[1], *settings.hidden, self._likelihood.n_outputs), settings.activation)
        settings = settings.at(full_batch=rows.full_batch, rows_per_parameter=rows.n_data / self._network.n_params)
        _check_needs(settings, rows)
        posterior = Posterior(self._network, self._likelihood, settings.prior, float(rows.n_rows), rows.n_data)
        source = rows.source(self._x_scaling, scaled_target, settings.dtype, settings.device)
        model = self._model()
        key = law_key(settings, rows, model)
        if last is None:
            job = self._job(settings, rows, posterior, source, lay_out)
        else:
            self._check_warm_start(last, model, settings)
            settings = last.settings(settings, key)
            job = last.resumed(self._job(settings, rows, posterior, source, lay_on), settings, model, key)
        result = sample_chains(job, settings.n_jobs)
        alive, divergence_message = surviving_chains(settings, posterior, job, result, rows.n_data, self._units_advice())
        self._store(settings, rows, job, result, alive)
        n_chains = settings.n_chains if last is None else last.n_chains
        self._last = last_state(settings, model, job, result, alive, n_data=rows.n_data, n_chains=n_chains, key=key)
        messages = self._run_messages(settings, rows, job, result, alive)
        messages = [divergence_message, *messages, self._model_message(settings, rows)]
        self._messages += [message for message in messages if message is not None]
        return result.interrupted, job.checkpoint

    def _checked(self, X: Matrix, y: Targets, *, reset: bool) -> tuple[Any, NDArray[Any]]:
        """Return checked training rows; features are new, or with ``reset`` False those of the call before."""
        if scipy.sparse.issparse(y):
            raise ValueError("y is sparse: targets must be a dense array; use y.toarray().")
        types = [np.float64, np.float32]
        X, y = validate_data(
            self, X, y, reset=reset, accept_sparse="csr", dtype=types, multi_output=True, y_numeric=self._y_numeric
        )
        return X, y

    def _learn_scales(self, rows: TrainingRows) -> None:
        """Remember the scales of the training rows."""
        self._x_scaling = column_scaling(rows.x, rows.weight, enabled=self.standardize)

    def _units_advice(self) -> str:
        """Return what to do about diverging chains besides shorter steps."""
        off = [f"{name}=False" for name in ("standardize", "normalize_y") if not getattr(self, name, True)]
        return f" With {' and '.join(off)} the data must be of order 1: scale them if a smaller rate does not help." if off else ""

    def _model(self) -> Model:
        """Return what the parameters of the chains mean."""
        of_y = self.__dict__.get("_y_scaling")
        return Model(self._network, self._likelihood, self.__dict__.get("classes_"), self._x_scaling, of_y)

    def _check_warm_start(self, last: LastState, model: Model, settings: Settings) -> None:
        """Raise ValueError if chains cannot go on from ``last`` in this fit; note if they begin far from its rows."""
        if settings.checkpoint is not None:
            raise ValueError(
                f"checkpoint={self.checkpoint!r} keeps no start of chains that go on: use checkpoint=None for a warm fit, or "
                "warm_start=False to begin anew or from the file that an interrupted fit has left."
            )
        last.check(model, settings, "Set it back, or use warm_start=False to begin anew.")
        far = last.model.far_message(model)
        self._messages += [] if far is None else [far]

    # --- what a subclass says about its targets ---------------------------------------------------------------------------

    _automatic: ClassVar[Sampler]  # of sampler="auto" with minibatches
    _least_warm_up = (1000, 16_000)  # steps, at full batch and with minibatches
    _steps_per_row = 10  # at full batch
    _y_numeric = False
    _full_batch_rows = 1000

    def _encode(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the targets as columns (n, k), unscaled, and remember how to go back."""
        raise NotImplementedError

    def _observe(
        self, rows: TrainingRows, n_data: float, hidden: tuple[int, ...], before: Likelihood | None
    ) -> tuple[NDArray[Any], Likelihood]:
        """Return the targets as they are sampled, and the observation model of N = ``n_data``; ``before``: of chains that go on."""
        raise NotImplementedError

    def _model_message(self, settings: Settings, rows: TrainingRows) -> str | None:
        """Return what to say if the fitted model itself shows that something is wrong."""
        return None

    # --- from parameters to a run ------------------------------------------------------------------------------------------

    def _weights(self, X: Any, y: NDArray[Any], sample_weight: ArrayLike | None) -> NDArray[np.float64]:
        """Return one weight per row, (n,) float64."""
        return row_weights(X, sample_weight)

    def _job(
        self, settings: Settings, rows: TrainingRows, posterior: Posterior, source: RowSource, lay: Callable[..., tuple[Stage, ...]]
    ) -> ChainJob:
        """Lay out the run."""
        step_size = settings.learning_rate / settings.unit(rows.n_data)
        timeline = self._timeline(settings, rows)
        stages = lay(settings, timeline, posterior, step_size, n_rows=rows.n_rows, full_batch=rows.full_batch)
        random = generator(self.random_state)
        job = ChainJob(
            stages=stages,
            source=source,
            row_set=RowSet(0, rows.n_rows),
            batch_size=rows.batch_size,
            independent=settings.sampler.needs_independent_batches,
            initial_scale=cast(Posterior, stages[0].posterior).initial_scale(),
            n_chains=settings.n_chains,
            entropy=tuple(random.randint(np.iinfo(np.int32).max, size=OWN).tolist()),
            device=settings.device,
            dtype=settings.dtype,
            verbose=settings.verbose,
        )
        if settings.checkpoint is None:
            return job
        parameters = {name: repr(value)[:100] for name, value in self.get_params(deep=False).items() if name not in BYSTANDERS}
        return checkpointed(job, settings.checkpoint, parameters, settings.n_jobs, any_streams=self.random_state is None)

    def _timeline(self, settings: Settings, rows: TrainingRows) -> Timeline:
        """Return the run step by step; note if fewer draws can be kept than were asked for."""
        n_steps = settings.n_steps(rows.n_rows, rows.batch_size)
        timeline = settings.schedule.timeline(
            n_steps=n_steps,
            steps_per_epoch=rows.n_rows / rows.batch_size,
            burn_in=settings.burn_in,
            n_draws=settings.n_draws,
        )
        if not settings.sampler.allows_zero_temperature and settings.temperature * timeline.temperature.min() == 0:
            raise ValueError(
                f"temperature={settings.temperature} with schedule={settings.schedule!r} reaches 0, where "
                f"{type(settings.sampler).__name__} is not defined; keep both positive."
            )
        if settings.sampler.law == "optimiser":
            return timeline.last_only()
        if timeline.collect.sum() < settings.n_draws:
            self._messages.append(
                f"n_draws={settings.n_draws} draws per chain were asked for, and {int(timeline.collect.sum())} kept: only so many "
                f"of the {n_steps} steps come after burn-in. Increase max_iter or lower n_draws."
            )
        return timeline

    def _store(self, settings: Settings, rows: TrainingRows, job: ChainJob, result: RunResult, alive: torch.Tensor) -> None:
        """Keep the draws of the chains that lived, and what can be measured only while the rows are there, as plain numpy."""
        rates = settings.unit(rows.n_data) * result.step_size[alive, 0].cpu().numpy()
        rates[np.isclose(rates, settings.learning_rate, rtol=1e-12)] = settings.learning_rate
        self.draws_ = np.ascontiguousarray(result.draws[:, alive].float().cpu().numpy())
        self.potential_curve_ = result.potential_curve[:, alive].cpu().numpy()
        self.learning_rate_ = one_or_each(rates)
        if len(self.draws_) > 1 and (self.draws_ == self.draws_[0]).all(axis=(0, 2)).any():
            seen = "is so small, or the schedule makes it so small, that a chain does not move: all its draws are equal"
            advice = "Increase it, or decay it less"
            if hasattr(result.state, "accepted") and bool((result.state.accepted[alive] == 0).any()):
                seen, advice = "is so large that a chain accepts no proposal: all its draws are equal", "Decrease it"
            self._messages.append(f"learning_rate={self.learning_rate_} {seen}. {advice}.")
        self._threshold, self._prune = spike_threshold(cast(Posterior, job.stages[-1].posterior))
        self.effective_temperature_ = effective_temperature(settings, job.stages[-1].timeline)
        self.n_steps_ = result.n_steps - settings.warm_up_steps(rows.n_rows, full_batch=rows.full_batch)
        self.n_iter_ = max(1, self.n_steps_ * rows.batch_size // rows.n_rows)
        self.sampler_ = settings.sampler
        self._measured, self.potential_ = measure(settings, job, result, alive)
        self._reference = self._reference_rows(rows)

    # --- what a run leaves to say ------------------------------------------------------------------------------------------

    def _reference_rows(self, rows: TrainingRows) -> NDArray[np.float32]:
        """Return a few training rows as the chains saw them, scaled: where predictions are compared."""
        some = dense_rows(rows.x, evenly(rows.x.shape[0], REFERENCE_ROWS))
        largest = np.finfo(np.float32).max
        return np.asarray(np.clip(self._x_scaling.apply(some, np.float64), -largest, largest), dtype=np.float32)

    def _run_messages(
        self, settings: Settings, rows: TrainingRows, job: ChainJob, result: RunResult, alive: torch.Tensor
    ) -> list[str | None]:
        """Return what to say if the run was interrupted, did not mix, or has batches too small or steps too long."""
        planned = sum(len(stage.timeline) for stage in job.stages)
        interrupted = (
            f"fit was interrupted after {result.n_steps} of {planned} steps: the {len(self.draws_)} draws per chain made so far "
            f"are kept. Fit again {'for a full run' if job.checkpoint is None else 'to go on from the checkpoint'}."
        )
        shared, of_rows = self._compared(QUICK - 1)
        mixing = mixing_message(self._measured, self.potential_, shared.values, of_rows.values, self.n_iter_)
        noise = noise_message(self._measured, float(np.mean(self.learning_rate_)), independent=job.independent)
        core = core_message(settings, job, result.step_size[alive], rows.n_data)
        return [interrupted if result.interrupted else None, mixing, noise, core]


@contextmanager
def all_or_nothing(estimator: BaseBayesianMLP) -> Iterator[None]:
    """Put the attributes of an estimator back to what they were if the block raises: the old model stays whole."""
    before = estimator.__dict__.copy()
    try:
        yield
    except BaseException:
        estimator.__dict__ = before
        raise


def one_or_each(rates: NDArray[np.float64]) -> float | NDArray[np.float64]:
    """Return the rate of all chains, or the rates of each, (C,), where they differ."""
    return rates if (rates != rates[0]).any() else float(rates[0])


def _check_needs(settings: Settings, rows: TrainingRows) -> None:
    """Raise ValueError if the sampler needs all rows at every step and does not get them."""
    if "full_batch" in settings.sampler.needs and not rows.full_batch:
        raise ValueError(
            f"batch_size={settings.batch_size} is less than the {rows.n_rows} training rows, and "
            f"{type(settings.sampler).__name__} needs all of them at every step; use batch_size='auto'."
        )
