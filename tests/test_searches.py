"""The interface of searches in batches: options, failures, warnings, and scikit-learn's own checks."""

import pickle
import time
import warnings

import numpy as np
import pytest
from searches import X, both, classifier, regressor, y
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning, NotFittedError
from sklearn.metrics import get_scorer
from sklearn.model_selection import GroupKFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_sgmcmc import BatchedGridSearchCV, BayesianMLPRegressor
from sklearn_sgmcmc.model_selection import _fits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# --- the interface of a search -----------------------------------------------------------------------------------------------


def test_several_metrics():
    _, batched = both(classifier(), {"bias_factor": [0, 1]}, scoring=["accuracy", "neg_log_loss"], refit="neg_log_loss")
    assert sorted(batched.scorer_) == ["accuracy", "neg_log_loss"]
    assert batched.score(X, y) < 0
    both(
        classifier(), {"bias_factor": [0, 1]}, scoring={"a": "accuracy", "b": "neg_log_loss"}, refit=False, return_train_score=True
    )
    both(classifier(), {"bias_factor": [0, 1]}, scoring=lambda model, X, y: {"draws": model.draws_.sum()}, refit="draws")


def test_a_refit_callable_sees_the_times_of_the_fits():
    seen = []

    def choose(results):
        seen.append(results["mean_fit_time"].copy())
        return 1

    _, batched = both(classifier(), {"bias_factor": [0, 1]}, refit=choose)
    np.testing.assert_array_equal(seen[1], batched.cv_results_["mean_fit_time"])
    assert batched.best_params_ == {"bias_factor": 1}


def test_times_of_fits_add_up_to_what_passed():
    search = BatchedGridSearchCV(classifier(max_iter=30), {"bias_factor": [0, 1, 2]}, cv=3, refit=False)
    start = time.perf_counter()
    search.fit(X, y)
    passed = time.perf_counter() - start
    total = 3 * (search.cv_results_["mean_fit_time"] + search.cv_results_["mean_score_time"]).sum()
    assert 0.5 * passed < total <= passed


def test_sample_weights_and_groups_are_split_with_the_rows():
    weight = np.random.RandomState(0).randint(1, 4, len(X))
    both(classifier(), {"bias_factor": [0, 1]}, fit_params={"sample_weight": weight})
    folds = {"groups": np.arange(len(X)) % 5}
    both(classifier(), {"bias_factor": [0, 1]}, fit_params=folds, cv=GroupKFold(3))
    pipe = make_pipeline(StandardScaler(), classifier())
    fit_params = {"bayesianmlpclassifier__sample_weight": weight.tolist()}
    both(pipe, {"bayesianmlpclassifier__bias_factor": [0, 1]}, fit_params=fit_params)


def test_metadata_is_routed():
    weight = np.random.RandomState(0).randint(1, 4, len(X))
    with config_context(enable_metadata_routing=True):
        model = classifier().set_fit_request(sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=True), model)
        scorer = get_scorer("neg_log_loss").set_score_request(sample_weight=True)
        both(pipe, {"bayesianmlpclassifier__bias_factor": [0, 1]}, fit_params={"sample_weight": weight}, scoring=scorer)


def test_splits_may_be_masks_and_rows_a_list():
    first = np.arange(len(X)) % 2 == 0
    both(classifier(), {"bias_factor": [0, 1]}, X.tolist(), y.tolist(), cv=[(first, ~first), (~first, first)])


def test_random_splits_are_the_same_for_all_candidates():
    both(classifier(), {"bias_factor": [0, 1]}, cv=ShuffleSplit(3, random_state=0))
    search = BatchedGridSearchCV(classifier(), {"bias_factor": [1, 1]}, cv=ShuffleSplit(3)).fit(X, y)
    np.testing.assert_array_equal(*search.cv_results_["split0_test_score"][:, None])


def test_a_search_is_cloned_and_pickled():
    search = BatchedGridSearchCV(classifier(), {"bias_factor": [0, 1]}, cv=2).fit(X, y)
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(search.predict_proba(X), again.predict_proba(X))
    with pytest.raises(NotFittedError):
        clone(search).predict(X)


def test_a_search_tells_what_it_does(capsys):
    BatchedGridSearchCV(classifier(), {"bias_factor": [0, 1]}, cv=2, verbose=1, refit=False).fit(X, y)
    assert capsys.readouterr().out == "Fitting 2 folds for each of 2 candidates, totalling 4 fits\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"refit": True, "scoring": ["accuracy"]}, "refit"),
        ({"error_score": "zero"}, "error_score"),
        ({"scoring": "no such"}, "scoring"),
    ],
)
def test_invalid_options_are_refused_before_any_fit(options, message, batches):
    with pytest.raises(ValueError, match=message):
        BatchedGridSearchCV(classifier(), {"bias_factor": [0]}, **options).fit(X, y)
    assert batches == []


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ValueError, match="bias_faktor"):
        BatchedGridSearchCV(classifier(), {"bias_faktor": [0]}).fit(X, y)


# --- failures and warnings -----------------------------------------------------------------------------------------------------


def test_fits_that_diverge_score_nan_and_leave_the_others_alone():
    grid = {"learning_rate": [0.01, 1e6], "temperature": [0.5, 1.0]}
    with pytest.warns(FitFailedWarning, match=r"(?s)6 fits failed out of a total of 12.*diverged"):
        _, batched = both(classifier(), grid)
    np.testing.assert_array_equal(np.isnan(batched.cv_results_["mean_test_score"]), [False, False, True, True])


def test_a_fit_that_diverges_says_what_it_says_alone():
    with pytest.raises(ValueError, match="diverged") as alone:
        classifier(learning_rate=1e6).fit(X, y)
    cv = [(np.arange(len(X)), np.arange(len(X)))]
    grid = {"learning_rate": [0.01, 1e6]}
    with pytest.raises(ValueError, match="diverged") as together:
        BatchedGridSearchCV(classifier(), grid, cv=cv, error_score="raise").fit(X, y)
    assert str(alone.value) == str(together.value)


def test_invalid_candidates_fail_alone():
    with pytest.warns(FitFailedWarning, match=r"(?s)6 fits failed.*temperature=-1"):
        both(classifier(), {"temperature": [-1, 1.0], "sampler": ["sgld", "sghmc"]})


def test_all_fits_failing_is_an_error():
    with pytest.raises(ValueError, match="All the 6 fits failed"):
        BatchedGridSearchCV(classifier(), {"temperature": [-1, -2]}, cv=3).fit(X, y)


def test_scorers_that_fail_score_nan():
    def fragile(model, X, y):
        if model.bias_factor:
            raise RuntimeError("fragile scorer")
        return 1.0

    grid = {"bias_factor": [0, 1]}
    with pytest.warns(UserWarning, match="(?s)Scoring failed.*fragile scorer"):
        both(classifier(), grid, scoring=fragile)
    with pytest.warns(UserWarning, match="(?s)Scoring failed.*fragile scorer"):
        both(classifier(), grid, scoring={"a": fragile, "b": "accuracy"}, refit="b", return_train_score=True)
    with pytest.raises(RuntimeError, match="fragile scorer"):
        BatchedGridSearchCV(classifier(), grid, scoring=fragile, error_score="raise").fit(X, y)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_warning_of_many_fits_is_given_once(n_jobs):
    model = classifier(max_iter=20, n_draws=100)
    search = BatchedGridSearchCV(model, {"bias_factor": [0, 1], "temperature": [0.1, 1]}, cv=3, n_jobs=n_jobs, refit=False)
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        search.fit(X, y)
    texts = [str(warning.message) for warning in log if issubclass(warning.category, ConvergenceWarning)]
    kept = [text for text in texts if text.startswith("n_draws=100 draws per chain were asked for")]
    assert len(kept) == 1
    assert "12 of the 12 fits" in kept[0]
    assert "{'bias_factor': 0, 'temperature': 0.1}, fold 0" in kept[0]
    assert sum(text.startswith("The chains have not mixed") for text in texts) == 1  # some of predictions, some of the potential


def test_an_interrupted_search_ends(monkeypatch):
    calls = []

    def interrupt(jobs):
        calls.append(len(jobs))
        raise KeyboardInterrupt

    monkeypatch.setattr(_fits, "run_together", interrupt)
    with pytest.raises(KeyboardInterrupt):
        BatchedGridSearchCV(classifier(), {"bias_factor": [0, 1]}, cv=3).fit(X, y)
    assert calls == [6]


# --- scikit-learn's own checks -------------------------------------------------------------------------------------------------


def known_failures(search):
    """GridSearchCV has no multi-output tag of its own, so that the check wants a regressor to warn of a column of targets."""
    of_regressor = isinstance(search.estimator, BayesianMLPRegressor)
    return {"check_supervised_y_2d": "the same with GridSearchCV"} if of_regressor else {}


@parametrize_with_checks(
    [
        BatchedGridSearchCV(classifier(max_iter=20, batch_size="auto"), {"temperature": [0.5, 1.0]}, cv=2),
        BatchedGridSearchCV(regressor(hidden_layer_sizes=(), max_iter=40, batch_size="auto"), {"temperature": [0.5, 1.0]}, cv=2),
    ],
    expected_failed_checks=known_failures,
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)
