"""Scikit-learn's searches, which rank what the fits have left."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, ParameterGrid, ParameterSampler, RandomizedSearchCV, check_cv
from sklearn.utils import indexable
from sklearn.utils.parallel import Parallel, delayed

from sklearn_sgmcmc.model_selection._fits import Cell, Outcome, Task, fit_and_score
from sklearn_sgmcmc.pooling import CHAINS

OWN = {"bias_factor", "temperature", "learning_rate", "prior_scale"}
"""Parameters of the estimators in which the chains of one batch may differ; the numbers of samplers and priors are others."""
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")


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


def _with_times(results: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write the seconds of the fits and of their scoring into the results of a search."""
    shape = (len(results["params"]), -1)
    fit = np.reshape([outcome.seconds for outcome in outcomes], shape)
    score = np.reshape([outcome.score_seconds for outcome in outcomes], shape)
    for name, seconds in (("fit", fit), ("score", score)):
        results[f"mean_{name}_time"], results[f"std_{name}_time"] = seconds.mean(axis=1), seconds.std(axis=1)


def _warn_once(outcomes: Sequence[Outcome], candidates: Sequence[dict[str, Any]]) -> None:
    """Give each warning of the fits once, whatever its numbers, with how many fits gave it.

    Of a ConvergenceWarning that is what stands before the first colon; what follows it is one fit's own.
    """
    n_folds = len(outcomes) // len(candidates)
    found: dict[tuple[type[Warning], str], dict[int, str]] = {}
    for number, outcome in enumerate(outcomes):
        for category, text in outcome.warned:
            what = text.partition(":")[0] if issubclass(category, ConvergenceWarning) else text
            found.setdefault((category, NUMBER.sub("#", what)), {}).setdefault(number, text)
    for (category, _), of_fits in found.items():
        first, text = next(iter(of_fits.items()))
        where = f"{candidates[first // n_folds]}, fold {first % n_folds}"
        more = (
            f"{len(of_fits)} of the {len(outcomes)} fits of the search warned so, each with its own numbers; these are of {where}."
        )
        warnings.warn(f"{text} {more}", category, stacklevel=3)
