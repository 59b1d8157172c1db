"""``partial_fit``: chains that go on from chunk to chunk of a stream."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if

from sklearn_sgmcmc.diagnostics import REFERENCE_ROWS, Measured
from sklearn_sgmcmc.engine import PATIENCE, RunResult
from sklearn_sgmcmc.estimators._base import BaseBayesianMLP, Matrix, Targets, all_or_nothing, one_or_each
from sklearn_sgmcmc.estimators._docs import shared_docs
from sklearn_sgmcmc.estimators._inputs import generator
from sklearn_sgmcmc.estimators._resume import OWN, LastState, Model
from sklearn_sgmcmc.estimators._review import allowed_excess, spike_threshold, state_figures
from sklearn_sgmcmc.estimators._settings import Settings, resolve
from sklearn_sgmcmc.estimators._walk import Walk, check_total, lay_out_chunk, split
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.samplers._base import map_state
from sklearn_sgmcmc.samplers.registry import SAMPLERS
from sklearn_sgmcmc.schedules import Constant
from sklearn_sgmcmc.threads import isolated

FEW_ROWS = 10
"""Rows of a first chunk below which its moments are poor scales."""
MOST_LOOKS = 200
"""Entries of ``potential_curve_`` beyond which every other one is dropped."""


def takes_chunks(estimator: Any) -> bool:
    """Return whether the sampler works with minibatches; raise AttributeError, naming those that do, if not."""
    sampler = estimator.sampler
    kind = SAMPLERS.get(sampler) if isinstance(sampler, str) else sampler
    if "full_batch" not in getattr(kind, "needs", ()):
        return True
    names = ", ".join(repr(name) for name, kind in SAMPLERS.items() if "full_batch" not in kind.needs)
    raise AttributeError(
        f"sampler={sampler!r} needs all rows at every step, which a stream never has: partial_fit is there with {names} or 'auto'."
    )


class StreamingMLP(BaseBayesianMLP):
    """The estimators' ``partial_fit``; ``docs/streaming.md`` has the laws."""

    @available_if(takes_chunks)  # type: ignore[untyped-decorator]
    @shared_docs
    def partial_fit(self, X: Matrix, y: Targets, sample_weight: ArrayLike | None = None, n_total: float | None = None) -> Self:
        """Take the chains on over one chunk of rows: a step per chunk, or per ``batch_size`` rows of it.

        <laws>

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
            The rows of a chunk; finite.
        y : array of shape (n_rows,) or (n_rows, n_outputs)
            Their targets.
        <shared arguments>
        """
        return self._partial_fit(X, y, None, sample_weight, n_total)

    def _encode_chunk(self, y: NDArray[Any], classes: ArrayLike | None, *, first: bool) -> NDArray[Any]:
        """Return the targets of a chunk as columns (n, k), as ``_encode`` does; the first call says what targets there are."""
        raise NotImplementedError

    def _partial_fit(
        self, X: Matrix, y: Targets, classes: ArrayLike | None, sample_weight: ArrayLike | None, n_total: float | None
    ) -> Self:
        """Do what ``partial_fit`` says; whatever goes wrong, the old model stays whole."""
        with all_or_nothing(self):
            with torch.inference_mode(False), torch.no_grad(), isolated():
                self._advance(X, y, classes, sample_weight, n_total)
            for message in self._messages:
                warnings.warn(message, ConvergenceWarning, stacklevel=3)
        return self

    def _advance(
        self, X: Matrix, y: Targets, classes: ArrayLike | None, sample_weight: ArrayLike | None, n_total: float | None
    ) -> None:
        """Check the chunk, take its steps and store what they leave."""
        self._messages = []
        settings = _settings(self)
        last: LastState | None = self.__dict__.get("_last")
        X, y = self._checked(X, y, reset=last is None)
        target = self._encode_chunk(y, classes, first=last is None)
        chunk = split(X, target, self._weights(X, y, sample_weight), settings.batch_size)
        if last is None:
            self._learn_scales(chunk.rows)
            self._note_few_rows(chunk.rows.n_rows)
        before = None if last is None else last.model.likelihood
        scaled, self._likelihood = self._observe(chunk.rows, math.inf, settings.hidden, before)
        self._network = MLP((X.shape[1], *settings.hidden, self._likelihood.n_outputs), settings.activation)
        model = self._model()
        if last is None:
            last = self._nothing_yet(settings, model)
        last.check(model, settings, "Set it back, or begin anew with fit or with clone(model).partial_fit.")
        walk = lay_out_chunk(settings, chunk, scaled, last, check_total(n_total, chunk), len(self.draws_))
        self._keep(walk, last, walk.run())

    def _note_few_rows(self, n_rows: int) -> None:
        """Note that the scales of the first chunk, which hold for good, are poor."""
        if n_rows < FEW_ROWS and (self.standardize or getattr(self, "normalize_y", False)):
            self._messages.append(
                f"The first chunk has {n_rows} rows, and the scales of X and y are taken from it for good: begin with at least "
                f"{FEW_ROWS} rows, or scale the data beforehand and use standardize=False (and normalize_y=False)."
            )

    def _nothing_yet(self, settings: Settings, model: Model) -> LastState:
        """Return the state before the first call, with empty attributes to add to: all parameters are 0 until they are drawn."""
        entropy = generator(self.random_state).randint(np.iinfo(np.int32).max, size=OWN)
        shape = (settings.n_chains, model.network.n_params + model.likelihood.n_params)
        self.draws_ = np.empty((0, *shape), dtype=np.float32)
        self._reference = np.empty((0, model.network.widths[0]), dtype=np.float32)
        self.n_iter_ = self.n_steps_ = 0
        one = np.ones((settings.n_chains, 1))
        return LastState(model, None, "", one, 0.0, settings.n_chains, tuple(entropy.tolist()))

    def _keep(self, walk: Walk, last: LastState, result: RunResult) -> None:
        """Store the chains that lived, with their draws."""
        settings, stream = walk.settings, walk.stream
        alive, strays = self._living(walk, result)
        held = self.draws_[np.isin(walk.held, stream.draw_steps)]
        self.draws_ = np.concatenate([held, result.draws.float().cpu().numpy()])[:, alive]
        stream = replace(stream, strays=strays, curve_every=self._add_to_curve(last, result, alive))
        self.learning_rate_ = one_or_each(settings.learning_rate * stream.factor[alive, 0])
        self._threshold, self._prune = spike_threshold(walk.potential.posterior)
        self.effective_temperature_ = settings.sampler.effective_temperature(settings.temperature)
        self.sampler_ = settings.sampler
        self.n_iter_, self.n_steps_ = self.n_iter_ + 1, self.n_steps_ + walk.chunk.n_steps
        state = map_state(result.state, lambda field: field[torch.from_numpy(alive)])
        note = "" if stream.n_total is not None else "compared along a moving target: R-hat and ESS count its moves too"
        facts = state_figures(settings, walk.timeline, state, settings.temperature)
        none = np.empty(0, dtype=np.int64)
        self._measured = Measured(slice(0, len(self.draws_)), note, none, law=walk.law(), **facts)
        self.potential_ = np.empty((0, self.draws_.shape[1]))
        self._reference = np.concatenate([self._reference, self._reference_rows(walk.chunk.rows)])[:REFERENCE_ROWS]
        per_chain = ("n_data", "strays", "factor", "curvature", "direction")
        self._last = replace(
            last,
            state=map_state(state, lambda field: field.cpu().numpy()),
            sampler=repr(settings.sampler),
            step_size=walk.step_size.cpu().numpy()[alive],
            calls=last.calls + 1,
            key="",
            stream=replace(stream, **{name: part[alive] for name in per_chain if (part := getattr(stream, name)) is not None}),
        )

    def _living(self, walk: Walk, result: RunResult) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which chains live on, and for how many calls each has strayed; raise ValueError if none lives."""
        settings, theta = walk.settings, result.state.theta
        zero = torch.zeros_like(theta)
        astray = result.potential_curve[-1] > walk.potential.value(zero) + allowed_excess(settings, walk.potential.posterior, zero)
        runaway = settings.sampler.runaway(result.state)
        astray = astray if runaway is None else astray | runaway
        strays = np.where(astray.cpu().numpy(), walk.stream.strays + 1, 0)
        alive = (result.diverged_at.cpu().numpy() < 0) & (strays < PATIENCE * walk.memory)
        n_dead = len(alive) - int(alive.sum())
        if n_dead == 0:
            return alive, strays
        advice = f"try learning_rate<={float(settings.learning_rate * walk.stream.factor.min()) / 10:.2g}"
        if runaway is not None and bool(runaway.cpu().numpy()[~alive].all()):
            advice = settings.sampler.runaway_advice
        message = f"learning_rate={self.learning_rate!r} diverged ({n_dead} of {len(alive)} chains); {advice}."
        if not alive.any():
            raise ValueError(
                f"{message} The model is left as it was before this call. If a smaller rate does not help, this chunk lies far "
                "from the rows that the scales of X and y are from."
            )
        self._messages.append(f"{message} The diverged chains were dropped.")
        return alive, strays

    def _add_to_curve(self, last: LastState, result: RunResult, alive: NDArray[np.bool_]) -> int:
        """Append U to the curve, thinned as the stream goes on; return the calls from one entry to the next."""
        curve, every = result.potential_curve[-1:].cpu().numpy(), 1
        if last.stream is not None:
            every = last.stream.curve_every
            due = (last.calls + 1) % every == 0
            curve = np.concatenate([self.potential_curve_, curve]) if due else self.potential_curve_
        if len(curve) > MOST_LOOKS:
            curve, every = curve[::2], 2 * every
        self.potential_curve_ = curve[:, alive]
        return every


def _settings(estimator: Any) -> Settings:
    """Return the checked parameters; raise ValueError where one has no meaning in a stream."""
    settings = resolve(estimator)
    if not isinstance(settings.schedule, Constant):
        raise ValueError(f"schedule={estimator.schedule!r} is laid out over a run, and a stream has no end: use 'constant'.")
    if len(settings.prior.phases) > 1:
        raise ValueError(f"prior={estimator.prior!r} changes at a share of a run, and a stream has no end: use one of its parts.")
    if settings.temperature == 0 and not settings.sampler.allows_zero_temperature:
        name = type(settings.sampler).__name__
        raise ValueError(f"temperature={estimator.temperature!r} is 0, where {name} is not defined; make it positive.")
    if settings.checkpoint is not None:
        raise ValueError(
            f"checkpoint={estimator.checkpoint!r} is for a run of fit, and partial_fit makes a few steps: use checkpoint=None "
            "and save the model itself between calls."
        )
    return settings
