"""The fits of a search: each runs until it wants chains, and chains that go together are one batch."""

from __future__ import annotations

import contextvars
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn import config_context, get_config
from sklearn.base import clone

from sklearn_sgmcmc.chains import RUNNER, ChainJob
from sklearn_sgmcmc.engine import RunResult
from sklearn_sgmcmc.pooling import groups, run_together
from sklearn_sgmcmc.threads import isolated


@dataclass
class Outcome:
    """What became of one candidate on one fold.

    test, train : a score, or one per scorer by name, or what the scorer raised; None where there is none.
    error : what the fit raised.
    seconds : of the fit, with its share of what it had in common with others. score_seconds : of scoring the test rows.
    warned : category and text of the warnings given on the way.
    """

    test: Any = None
    train: Any = None
    error: Exception | None = None
    seconds: float = 0.0
    score_seconds: float = 0.0
    warned: list[tuple[type[Warning], str]] = field(default_factory=list)


class Cell(NamedTuple):
    """One candidate on one fold: their numbers, and the settings of the candidate."""

    candidate: int
    fold: int
    settings: dict[str, Any]


class Part(NamedTuple):
    """Rows of one fold: X and y (if there is one), and the further arguments of ``fit`` and of the scorers."""

    data: tuple[Any, ...]
    fit_params: dict[str, Any]
    score_params: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What all fits of a search have in common.

    splits : train and test row numbers of each fold. fit_params, score_params : arguments beside X and y, one entry per row or not.
    """

    estimator: Any
    X: Any
    y: Any
    splits: Sequence[tuple[Any, Any]]
    fit_params: dict[str, Any]
    score_params: dict[str, Any]
    scorer: Callable[..., Any]
    return_train_score: bool
    error_score: Any

    def part(self, fold: int, *, test: bool) -> Part:
        """Return the training or test rows of a fold."""
        rows = self.splits[fold][test]
        data = (self.X,) if self.y is None else (self.X, self.y)
        n_rows = _length(self.X)
        params = (
            {name: _take(value, rows) if _length(value) == n_rows else value for name, value in several.items()}
            for several in (self.fit_params, self.score_params)
        )
        return Part(tuple(_take(values, rows) for values in data), *params)

    def with_settings(self, settings: dict[str, Any]) -> Any:
        """Return an unfitted estimator with a candidate's settings, which may themselves be estimators."""
        return clone(self.estimator).set_params(**clone(settings, safe=False))

    def score(self, model: Any, part: Part) -> Any:
        """Return the score of a fitted model in some rows, one per scorer by name if there are several, or what a scorer raised."""
        try:
            scores = self.scorer(model, *part.data, **part.score_params)
        except Exception as error:
            return error
        if not isinstance(scores, dict):
            return scores
        failed = [text for text in scores.values() if isinstance(text, str)]
        for text in failed:
            message = (
                f"Scoring failed. The score on this train-test partition for these parameters will be set to {self.error_score}."
            )
            warnings.warn(f"{message} Details:\n{text}", UserWarning, stacklevel=2)
        return {name: self.error_score if isinstance(score, str) else score for name, score in scores.items()}


class PausedFit:
    """A fit in a thread of its own that stops where it wants chains to be run, and goes on when it is handed them.

    Threads take turns here: whoever calls ``advance`` waits until the fit stops again or ends. So any estimator's ``fit`` is run
    as it is, whatever lies between it and the chains.
    """

    def __init__(self, fit: Callable[[], Any]) -> None:
        self.job: ChainJob | None = None
        self.error: BaseException | None = None
        self.seconds = 0.0
        self._fit, self._config = fit, get_config()
        self._answer: RunResult | None = None
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(self._run,), daemon=True)

    def advance(self, answer: RunResult | None = None) -> None:
        """Hand the fit the chains of its job and let it run on; at first, start it."""
        start = time.perf_counter()
        self.job, self._answer = None, answer
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        self._stopped.acquire()
        self.seconds += time.perf_counter() - start

    def _run(self) -> None:
        self._go.acquire()
        RUNNER.set(self._wait)
        try:
            with config_context(**self._config):
                self._fit()
        except BaseException as error:
            self.error = error
        self._stopped.release()

    def _wait(self, job: ChainJob) -> RunResult:
        """Stop until the chains of ``job`` are there."""
        for stage in job.stages:
            stage.check()
        self.job = job
        self._stopped.release()
        self._go.acquire()
        if self._answer is None:
            raise KeyboardInterrupt
        return self._answer

    def end(self) -> None:
        """End the fit if it still waits, or where it would next wait."""
        self._answer = None
        self._go.release()


def fit_and_score(task: Task, cells: Sequence[Cell]) -> list[Outcome]:
    """Fit some cells together, score each, and return their outcomes."""
    outcomes = [Outcome() for _ in cells]
    training = {fold: task.part(fold, test=False) for fold in {cell.fold for cell in cells}}
    test = {fold: task.part(fold, test=True) for fold in training}
    models = [task.with_settings(cell.settings) for cell in cells]
    fits = []
    for cell, model in zip(cells, models, strict=True):
        part = training[cell.fold]
        fits.append(PausedFit(partial(model.fit, *part.data, **part.fit_params)))
    try:
        _run_in_turns(fits, outcomes)
    finally:
        for fit in fits:
            fit.end()
    for cell, model, fit, outcome in zip(cells, models, fits, outcomes, strict=True):
        outcome.seconds += fit.seconds
        if fit.error is not None:
            outcome.error = _ordinary(fit.error)
            continue
        with _noted(outcome):
            start = time.perf_counter()
            outcome.test = task.score(model, test[cell.fold])
            outcome.score_seconds = time.perf_counter() - start
            outcome.train = task.score(model, training[cell.fold]) if task.return_train_score else None
    return outcomes


@isolated()
def _run_in_turns(fits: Sequence[PausedFit], outcomes: Sequence[Outcome]) -> None:
    """Let every fit run until it wants chains, run those that go together as one batch, and so on until all fits have ended."""
    for fit, outcome in zip(fits, outcomes, strict=True):
        with _noted(outcome):
            fit.advance()
    while waiting := [number for number, fit in enumerate(fits) if fit.job is not None]:
        jobs: list[Any] = [fits[number].job for number in waiting]
        for group in groups(jobs):
            together = [jobs[member] for member in group]
            start = time.perf_counter()
            results = run_together(together)
            per_chain = (time.perf_counter() - start) / sum(job.n_chains for job in together)
            for member, job, result in zip(group, together, results, strict=True):
                fit, outcome = fits[waiting[member]], outcomes[waiting[member]]
                outcome.seconds += per_chain * job.n_chains
                with _noted(outcome):
                    fit.advance(result)


def _ordinary(error: BaseException) -> Exception:
    """Return an error of a fit; raise it if it is to end the whole search."""
    if isinstance(error, Exception):
        return error
    raise error


@contextmanager
def _noted(outcome: Outcome) -> Iterator[None]:
    """Put the warnings given in this block into an outcome instead of showing them."""
    with warnings.catch_warnings(record=True) as log:
        yield
    outcome.warned += [(warning.category, str(warning.message)) for warning in log or []]


def _take(values: Any, rows: Any) -> Any:
    """Return some rows, by number or as a mask, of an array, a sparse matrix, a data frame, a series, a pyarrow table or a list."""
    rows = np.asarray(rows)
    rows = np.flatnonzero(rows) if rows.dtype == bool else rows
    if type(values).__module__.startswith("pyarrow."):
        return values.take(rows)
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return values[rows] if hasattr(values, "shape") else [values[row] for row in rows]


def _length(value: Any) -> int | None:
    """Return how many rows a value has, None if it has none."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(value) if hasattr(value, "__len__") and not isinstance(value, str | dict) else None
