"""Searches over hyperparameters in which the fits of all candidates and folds are chains of a few batches."""

from __future__ import annotations

import contextvars
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import GridSearchCV, ParameterGrid, ParameterSampler, RandomizedSearchCV, check_cv
from sklearn.utils import indexable
from sklearn.utils.parallel import Parallel, delayed

from sklearn_sgmcmc.chains import RUNNER, ChainJob
from sklearn_sgmcmc.engine import RunResult
from sklearn_sgmcmc.pooling import CHAINS, groups, run_together

OWN = {"bias_factor", "temperature", "learning_rate", "prior_scale"}
"""Parameters of the estimators in which the chains of one batch may differ; the numbers of samplers and priors are others."""
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")


# --- what is fitted ----------------------------------------------------------------------------------------------------------


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


def _structure(settings: dict[str, Any]) -> str:
    """Return the settings in which the chains of a batch are likely to have to agree, as text to sort by."""
    shared = []
    for name, value in settings.items():
        *path, last = name.split("__")
        of_object = bool(path) and path[-1] in ("sampler", "prior") and isinstance(value, Real)
        if last not in OWN and not of_object:
            shared.append((name, repr(value)))
    return repr(sorted(shared))


def _n_chains(estimator: Any) -> int:
    """Return how many chains a fit has, wherever in the estimator that is set; 1 if nowhere."""
    found = (value for name, value in estimator.get_params().items() if name.split("__")[-1] == "n_chains")
    return max([value for value in found if isinstance(value, int)], default=1)


# --- what scikit-learn makes of it -------------------------------------------------------------------------------------------


class _Recorded(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Stands in a plain search for fits that are done already: the search takes their outcomes in its order of fits."""

    def __init__(self, outcomes: Sequence[Outcome], n_folds: int) -> None:
        self.outcomes, self.n_folds = iter(outcomes), n_folds

    def __sklearn_clone__(self) -> Self:
        return self

    def set_params(self, **params: Any) -> Self:
        """Accept a candidate."""
        return self

    def fit(self, X: Any, y: Any = None) -> Self:
        """Take the next outcome; the refit, on more than one row, is not done here."""
        if len(X) == 1:
            self.outcome = next(self.outcomes)
            if self.outcome.error is not None:
                raise self.outcome.error
        return self

    def recorded_score(self, X: Any, y: Any = None) -> Any:
        """Return the test score if the row stands for a test fold, else the training score."""
        score = self.outcome.test if X[0, 0] >= self.n_folds else self.outcome.train
        if isinstance(score, Exception):
            raise score
        return score


class _BatchedSearch:
    """What the two searches share: ``fit``."""

    def fit(self: Any, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit all candidates on all folds, batch by batch, and the best one on all rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Training inputs.
        y : array of shape (n_rows,) or (n_rows, n_outputs)
            Labels or targets.
        **params : dict
            ``sample_weight``, ``groups`` and other arguments of the estimator's ``fit``, of the scorers and of the splitter, as for
            scikit-learn's GridSearchCV. Those with one entry per row are split with X.

        Returns
        -------
        self
            The fitted search.

        Raises
        ------
        ValueError
            If a parameter of the search is invalid or every fit fails; with ``error_score="raise"``, whatever a fit raises.
        """
        self._validate_params()
        scorer, _ = self._get_scorers()
        X, y = indexable(X, y)
        routed = self._get_routed_params_for_fit(params)
        splitter = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(splitter.split(X, y, **routed.splitter.split))
        of_fit, of_score = routed.estimator.fit, routed.scorer.score
        task = Task(self.estimator, X, y, splits, of_fit, of_score, scorer, self.return_train_score, self.error_score)
        candidates = self._candidates()
        outcomes = self._outcomes(task, candidates)
        search = self._recorded_search(outcomes, candidates, len(splits)).fit(np.arange(2 * len(splits))[:, None])
        _with_times(search.cv_results_, outcomes)
        vars(self).update({name: value for name, value in vars(search).items() if name.endswith("_")})
        self.scorer_ = getattr(scorer, "_scorers", scorer)
        _warn_once(outcomes, candidates)
        if self.refit:
            self._refit(task)
        return self

    def _candidates(self: Any) -> list[dict[str, Any]]:
        """Return the settings to try."""
        raise NotImplementedError

    def _outcomes(self: Any, task: Task, candidates: Sequence[dict[str, Any]]) -> list[Outcome]:
        """Fit and score all cells, those that are likely to form a batch side by side; return them by candidate, then by fold."""
        n_folds = len(task.splits)
        cells = [Cell(number, fold, settings) for number, settings in enumerate(candidates) for fold in range(n_folds)]
        if self.verbose > 0:
            print(f"Fitting {n_folds} folds for each of {len(candidates)} candidates, totalling {len(cells)} fits")
        likely = sorted(cells, key=lambda cell: (_structure(cell.settings), len(task.splits[cell.fold][0])))
        size = max(1, min(CHAINS // _n_chains(self.estimator), -(-len(cells) // effective_n_jobs(self.n_jobs))))
        parts = [likely[start : start + size] for start in range(0, len(likely), size)]
        parallel = Parallel(n_jobs=self.n_jobs, pre_dispatch=self.pre_dispatch, verbose=max(0, self.verbose - 1))
        found = {}
        for part, outcomes in zip(parts, parallel(delayed(fit_and_score)(task, part) for part in parts), strict=True):
            found.update({(cell.candidate, cell.fold): outcome for cell, outcome in zip(part, outcomes, strict=True)})
        return [found[cell.candidate, cell.fold] for cell in cells]

    def _recorded_search(
        self: Any, outcomes: Sequence[Outcome], candidates: Sequence[dict[str, Any]], n_folds: int
    ) -> GridSearchCV:
        """Return the plain search that ranks the outcomes: row k of its data is fold k to train on, row n_folds + k to test."""

        def choose(results: dict[str, Any]) -> Any:
            _with_times(results, outcomes)
            return self.refit(results)

        return GridSearchCV(
            _Recorded(outcomes, n_folds),
            [{name: [value] for name, value in settings.items()} for settings in candidates],
            scoring=_Recorded.recorded_score,
            n_jobs=1,
            refit=choose if callable(self.refit) else self.refit,
            cv=[([fold], [n_folds + fold]) for fold in range(n_folds)],
            error_score=self.error_score,
            return_train_score=self.return_train_score,
        )

    def _refit(self: Any, task: Task) -> None:
        """Fit the best candidate on all rows."""
        self.best_estimator_ = task.with_settings(self.best_params_)
        start = time.time()
        self.best_estimator_.fit(*((task.X,) if task.y is None else (task.X, task.y)), **task.fit_params)
        self.refit_time_ = time.time() - start
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_


def _with_times(results: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write the seconds of the fits and of their scoring into the results of a search."""
    shape = (len(results["params"]), -1)
    fit = np.reshape([outcome.seconds for outcome in outcomes], shape)
    score = np.reshape([outcome.score_seconds for outcome in outcomes], shape)
    for name, seconds in (("fit", fit), ("score", score)):
        results[f"mean_{name}_time"], results[f"std_{name}_time"] = seconds.mean(axis=1), seconds.std(axis=1)


def _warn_once(outcomes: Sequence[Outcome], candidates: Sequence[dict[str, Any]]) -> None:
    """Give each warning of the fits once, whatever its numbers, with how many fits gave it."""
    n_folds = len(outcomes) // len(candidates)
    found: dict[tuple[type[Warning], str], dict[int, str]] = {}
    for number, outcome in enumerate(outcomes):
        for category, text in outcome.warned:
            found.setdefault((category, NUMBER.sub("#", text)), {}).setdefault(number, text)
    for (category, _), of_fits in found.items():
        first, text = next(iter(of_fits.items()))
        where = f"{candidates[first // n_folds]}, fold {first % n_folds}"
        more = (
            f"{len(of_fits)} of the {len(outcomes)} fits of the search warned so, each with its own numbers; these are of {where}."
        )
        warnings.warn(f"{text} {more}", category, stacklevel=3)


class BatchedGridSearchCV(_BatchedSearch, GridSearchCV):  # type: ignore[misc]  # scikit-learn is untyped
    """GridSearchCV whose fits run as chains of a few batches.

    Results are bit for bit those of scikit-learn's GridSearchCV, with less time per fit. Candidates and folds that differ only in
    ``bias_factor``, ``temperature``, ``learning_rate``, ``prior_scale`` or numbers of the sampler and the prior
    (``sampler__friction``, ``prior__scale``) are computed together, up to 64 chains at a time. Others are grouped by what they have
    in common; what goes with nothing else, or is no Bayesian MLP at all, is fitted by itself. The estimator may stand anywhere in
    a Pipeline or another meta-estimator: transformers are fitted per fold, as ever.

    Parameters
    ----------
    estimator : estimator
        A BayesianMLPClassifier or BayesianMLPRegressor, or an estimator that contains one.
    param_grid : dict or list of dict
        Values to try by parameter name.
    scoring : str, callable, list or dict, default None
        One metric or several, as for GridSearchCV; None is the estimator's ``score``.
    n_jobs : int or None, default None
        Worker processes; each takes batches of up to 64 chains. Results do not depend on it.
    refit : bool, str or callable, default True
        Whether, and by which metric, the best candidate is fitted on all rows, as for GridSearchCV.
    cv : int, splitter or iterable, default None
        Folds, as for GridSearchCV; None is 5.
    verbose : int, default 0
        1 tells the number of fits, 2 and more the progress by batches.
    pre_dispatch : int or str, default "2*n_jobs"
        As for GridSearchCV.
    error_score : "raise" or float, default NaN
        Score of a fit that fails.
    return_train_score : bool, default False
        Whether training rows are scored as well.

    Attributes
    ----------
    cv_results_ : dict of ndarrays of shape (n_candidates,)
        As for GridSearchCV. Times are in seconds; a batch's is divided among its fits by their numbers of chains.
    best_estimator_, best_params_, best_score_, best_index_, scorer_, n_splits_, refit_time_, multimetric_, classes_
        As for GridSearchCV; so are ``n_features_in_`` and ``feature_names_in_``.

    Notes
    -----
    Fits that fail, such as those whose chains all diverge, score ``error_score`` and are reported by one FitFailedWarning. Warnings
    that several fits give are given once, with their number.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BatchedGridSearchCV, BayesianMLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((10,), sampler="msgld", random_state=0)
    >>> search = BatchedGridSearchCV(model, {"bias_factor": [0, 1], "temperature": [0.1, 1]}, cv=3).fit(X, y)
    >>> search.cv_results_["mean_test_score"].shape
    (4,)
    """

    def _candidates(self) -> list[dict[str, Any]]:
        return list(ParameterGrid(self.param_grid))


class BatchedRandomizedSearchCV(_BatchedSearch, RandomizedSearchCV):  # type: ignore[misc]  # scikit-learn is untyped
    """RandomizedSearchCV whose fits run as chains of a few batches; see BatchedGridSearchCV.

    Parameters
    ----------
    estimator : estimator
        A BayesianMLPClassifier or BayesianMLPRegressor, or an estimator that contains one.
    param_distributions : dict or list of dict
        Distributions (with a method ``rvs``) or lists to sample from, by parameter name.
    n_iter : int, default 10
        Number of candidates.
    scoring : str, callable, list or dict, default None
        One metric or several, as for GridSearchCV; None is the estimator's ``score``.
    n_jobs : int or None, default None
        Worker processes; each takes batches of up to 64 chains. Results do not depend on it.
    refit : bool, str or callable, default True
        Whether, and by which metric, the best candidate is fitted on all rows, as for GridSearchCV.
    cv : int, splitter or iterable, default None
        Folds, as for GridSearchCV; None is 5.
    verbose : int, default 0
        1 tells the number of fits, 2 and more the progress by batches.
    pre_dispatch : int or str, default "2*n_jobs"
        As for GridSearchCV.
    random_state : int, RandomState or None, default None
        Of the candidates; fits have that of the estimator.
    error_score : "raise" or float, default NaN
        Score of a fit that fails.
    return_train_score : bool, default False
        Whether training rows are scored as well.

    Attributes
    ----------
    cv_results_, best_estimator_, best_params_, best_score_, best_index_
        As for BatchedGridSearchCV.

    Examples
    --------
    >>> from scipy.stats import loguniform
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BatchedRandomizedSearchCV, BayesianMLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), sampler="sgld", max_iter=200, n_draws=20, random_state=0)
    >>> search = BatchedRandomizedSearchCV(model, {"temperature": loguniform(0.01, 1)}, n_iter=3, cv=2, random_state=0)
    >>> search.fit(X, y).cv_results_["mean_test_score"].shape
    (3,)
    """

    def _candidates(self) -> list[dict[str, Any]]:
        return list(ParameterSampler(self.param_distributions, self.n_iter, random_state=self.random_state))
