"""Searches in batches: the results are those of scikit-learn's searches, bit for bit, however fits are put together."""

import pickle
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from scipy.stats import loguniform
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, RandomizedSearchCV, ShuffleSplit, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_sgmcmc import BatchedGridSearchCV, BatchedRandomizedSearchCV, BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.chains import RUNNER
from sklearn_sgmcmc.model_selection import _fits
from sklearn_sgmcmc.pooling import CannotPoolError, groups, pooled_stages
from sklearn_sgmcmc.priors import Laplace, Normal, SpikeSlab, StudentT
from sklearn_sgmcmc.samplers import SAMPLERS
from sklearn_sgmcmc.samplers.drift import ASGLD, MSGLD

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, y = load_iris(return_X_y=True)
X, y = X[::2], y[::2]
X_diabetes, y_diabetes = (part[:90] for part in load_diabetes(return_X_y=True))
FAST = {"hidden_layer_sizes": (4,), "max_iter": 4, "batch_size": 16, "n_draws": 3, "random_state": 0}


def classifier(**params):
    return BayesianMLPClassifier(**(FAST | {"sampler": "msgld"} | params))


def regressor(**params):
    return BayesianMLPRegressor(**(FAST | {"sampler": "sghmc"} | params))


@pytest.fixture
def batches(monkeypatch):
    """Return the list of the numbers of fits in each batch that is run."""
    sizes = []

    def counted(jobs, original=_fits.run_together):
        sizes.append(len(jobs))
        return original(jobs)

    monkeypatch.setattr(_fits, "run_together", counted)
    return sizes


def assert_equal_results(plain, batched):
    """All that a search has learned is the same, to the last bit; times apart."""
    assert list(plain.cv_results_) == list(batched.cv_results_)
    for name, column in plain.cv_results_.items():
        if name.endswith("_time"):
            assert np.isfinite(batched.cv_results_[name]).all()
        elif "_test_" in name or "_train_" in name:
            np.testing.assert_array_equal(column, batched.cv_results_[name], err_msg=name)
        else:
            assert repr(column) == repr(batched.cv_results_[name]), name
    for name in ("best_index_", "best_score_", "n_splits_", "multimetric_"):
        assert getattr(plain, name, None) == getattr(batched, name, None), name
    assert repr(getattr(plain, "best_params_", None)) == repr(getattr(batched, "best_params_", None))
    assert {name for name in vars(plain) if not name.startswith("_")} == {
        name for name in vars(batched) if not name.startswith("_")
    }


def both(estimator, grid, X=X, y=y, fit_params=None, kinds=(GridSearchCV, BatchedGridSearchCV), **options):
    """Return the plain and the batched search, fitted; their results are equal."""
    options = {"cv": 3} | options
    plain, batched = (kind(estimator, grid, **options).fit(X, y, **(fit_params or {})) for kind in kinds)
    assert_equal_results(plain, batched)
    return plain, batched


# --- the same results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [16, "auto"], ids=["minibatch", "full batch"])
def test_a_grid_over_numbers_is_one_batch_and_equals_the_plain_search(batch_size, batches):
    grid = {"bias_factor": [0, 2.5], "temperature": [0.1, 1], "learning_rate": [None, 0.1], "prior_scale": [1.0]}
    plain, batched = both(classifier(batch_size=batch_size), grid, scoring="neg_log_loss", return_train_score=True)
    np.testing.assert_array_equal(plain.best_estimator_.draws_, batched.best_estimator_.draws_)
    np.testing.assert_array_equal(plain.predict_proba(X), batched.predict_proba(X))
    assert sum(batches) == 24
    assert len(batches) <= 4  # of at most 64 chains, with a learning rate and without


def test_rates_that_are_found_with_a_caution_of_their_own_are_one_batch(batches):
    both(classifier(max_iter=40), {"bias_factor": [0, 1, 10]}, scoring="neg_log_loss")  # with 0 a sampler of the posterior
    assert batches == [9]


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_every_sampler_in_batches_equals_the_plain_search(name, batches):
    model = classifier(sampler=SAMPLERS[name](), batch_size="auto", max_iter=6)
    grid = [{"learning_rate": [None, 0.01], "prior_scale": [scale]} for scale in (0.5, 2.0)]
    if SAMPLERS[name].law != "optimiser":
        grid = [candidates | {"temperature": [tau]} for candidates, tau in zip(grid, (0.5, 1.0), strict=True)]
    both(model, grid, scoring="neg_log_loss")
    assert max(batches) > 1


@pytest.mark.parametrize(
    "grid",
    [
        {"sampler": [MSGLD(variant="recipe")], "sampler__bias_factor": [0, 1.0, 2.0], "sampler__smoothing": [0.5, 0.9]},
        {"sampler": [ASGLD()], "sampler__bias_factor": [0.0, 0.01], "sampler__regularizer": [1e-8, 1e-6]},
        {"sampler": ["sgld", "msgld", "sghmc", "sgnht"], "temperature": [0, 0.5]},
        {"schedule": ["step", "cyclical"], "temperature": [0.5, 1.0]},
        {"prior": [Normal(), Laplace(), StudentT()], "prior__scale": [0.5, 1.0]},
        {"prior": [SpikeSlab()], "prior__spike_scale": [0.1, 0.3], "prior__slab_probability": [0.3, 0.5]},
        {"prior": ["prior_switch"], "temperature": [0.5, 1.0]},
        {"hidden_layer_sizes": [(4,), (5,), ()], "temperature": [0.5, 1.0]},
        {"activation": ["relu", "tanh"], "bias_factor": np.arange(2)},
        {"max_iter": [2, 4], "n_draws": [2, 3], "n_chains": [1, 4, 6]},
        {"batch_size": [7, 16], "random_state": [0, 1], "bias_factor": np.array([0.5, 1.0], dtype=np.float32)},
    ],
    ids=lambda grid: ",".join(grid),
)
def test_mixed_grids_equal_the_plain_search(grid, batches):
    both(classifier(), grid, scoring="neg_log_loss")
    assert max(batches) > 1


@pytest.mark.parametrize("noise", ["homoscedastic", "heteroscedastic", 30.0])
def test_regressors_equal_the_plain_search(noise, batches):
    model = regressor(noise=noise, batch_size=20)
    both(model, {"temperature": [0.5, 1.0], "sampler": ["sghmc", "sgld"]}, X_diabetes, y_diabetes, cv=KFold(4))
    assert max(batches) > 1


def test_folds_of_unequal_size_are_one_batch(batches):
    folds = KFold(3, shuffle=True, random_state=0)
    both(classifier(batch_size=20, warm_up=0), {"temperature": [0.5, 1.0]}, X[:74], y[:74], cv=folds)
    assert batches == [6]


def test_folds_of_unequal_size_at_full_batch_are_grouped_by_size(batches):
    both(regressor(batch_size=100), {"temperature": [0.5, 1.0]}, X_diabetes[:74], y_diabetes[:74], cv=KFold(3))
    assert sorted(batches) == [2, 4]


def test_results_do_not_depend_on_workers():
    grid = {"bias_factor": [0, 1, 2], "hidden_layer_sizes": [(3,), (4,)]}
    one, two = (BatchedGridSearchCV(classifier(), grid, cv=3, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    assert_equal_results(one, two)


def test_a_randomized_search_tries_the_candidates_of_the_plain_one():
    distributions = {"temperature": loguniform(0.01, 1), "learning_rate": loguniform(0.01, 0.3), "bias_factor": [0, 1, 10]}
    both(
        classifier(),
        distributions,
        kinds=(RandomizedSearchCV, BatchedRandomizedSearchCV),
        n_iter=5,
        random_state=3,
        scoring="neg_log_loss",
    )


# --- wherever the estimator stands -------------------------------------------------------------------------------------------


def test_transformers_of_a_pipeline_are_fitted_per_fold(batches):
    inner = Pipeline([("pca", PCA(2)), ("net", classifier(standardize=False))])
    pipe = Pipeline([("scale", StandardScaler()), ("model", inner)])
    both(pipe, {"model__pca__n_components": [2, 3], "model__net__bias_factor": [0, 1]}, scoring="neg_log_loss")
    assert sorted(batches) == [6, 6]


def test_a_pipeline_with_a_memory_equals_the_plain_search(tmp_path):
    pipe = make_pipeline(StandardScaler(), classifier(), memory=str(tmp_path))
    both(pipe, {"bayesianmlpclassifier__bias_factor": [0, 1]})


def test_a_transformed_target_is_batched_too(batches):
    model = TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp)
    both(model, {"regressor__temperature": [0.5, 1.0]}, X_diabetes, y_diabetes)
    assert batches == [6]


def test_candidates_without_chains_are_fitted_plainly(batches):
    pipe = Pipeline([("model", classifier())])
    both(pipe, [{"model": [LogisticRegression()], "model__C": [0.1, 1]}, {"model__bias_factor": [0, 1]}])
    assert batches == [6]


def test_sparse_rows_are_fitted_one_by_one(batches):
    both(classifier(), {"bias_factor": [0, 1]}, scipy.sparse.csr_matrix(X))
    assert set(batches) == {1}


def test_a_data_frame_keeps_its_names():
    frame = pd.DataFrame(X, columns=list("abcd"))
    _, batched = both(classifier(), {"bias_factor": [0, 1]}, frame, pd.Series(y).map({0: "x", 1: "y", 2: "z"}))
    assert batched.feature_names_in_.tolist() == list("abcd")
    assert batched.classes_.tolist() == ["x", "y", "z"]


def test_tables_of_pyarrow_are_split():
    pytest.importorskip("sklearn", "1.9", reason="takes no rows of tables")
    arrow = pytest.importorskip("pyarrow")
    both(classifier(), {"bias_factor": [0, 1]}, arrow.table(dict(zip("abcd", X.T, strict=True))), y)


def test_a_search_inside_cross_val_score_equals_the_plain_one():
    searches = (kind(classifier(), {"bias_factor": [0, 1]}, cv=2) for kind in (GridSearchCV, BatchedGridSearchCV))
    plain, batched = (cross_val_score(search, X, y, cv=2) for search in searches)
    np.testing.assert_array_equal(plain, batched)


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


# --- what goes together ------------------------------------------------------------------------------------------------------


def job_of(model, X=X, y=y):
    """Return the job that a fit would run."""
    found = []

    def note(job):
        found.append(job)
        raise KeyboardInterrupt

    token = RUNNER.set(note)
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    finally:
        RUNNER.reset(token)
    return found[0]


def test_numbers_that_differ_become_one_value_per_chain():
    jobs = [job_of(classifier(bias_factor=a, temperature=0.5, n_chains=n)) for a, n in ((1, 2), (2.5, 3))]
    *_, stage = pooled_stages(jobs)
    torch.testing.assert_close(stage.sampler.bias_factor, torch.tensor([1, 1, 2.5, 2.5, 2.5], dtype=torch.float64)[:, None])
    assert stage.temperature == 0.5
    assert list(groups(jobs)) == [[0, 1]]


@pytest.mark.parametrize("params", [{"max_iter": 5}, {"activation": "tanh"}, {"sampler": "sgld"}, {"prior": "laplace"}])
def test_other_differences_do_not_pool(params):
    jobs = [job_of(classifier()), job_of(classifier(**params))]
    with pytest.raises(CannotPoolError):
        pooled_stages(jobs)
    assert list(groups(jobs)) == [[0], [1]]


def test_no_batch_has_more_than_64_chains():
    jobs = [job_of(classifier(bias_factor=a, n_chains=20)) for a in range(4)]
    assert list(groups(jobs)) == [[0, 1, 2], [3]]


# --- scikit-learn's own checks -------------------------------------------------------------------------------------------------


def known_failures(search):
    """GridSearchCV has no multi-output tag of its own, so that the check wants a regressor to warn of a column of targets."""
    of_regressor = isinstance(search.estimator, BayesianMLPRegressor)
    return {"check_supervised_y_2d": "the same with GridSearchCV"} if of_regressor else {}


@parametrize_with_checks(
    [
        BatchedGridSearchCV(classifier(max_iter=40, batch_size="auto"), {"temperature": [0.5, 1.0]}, cv=2),
        BatchedGridSearchCV(regressor(max_iter=200, batch_size="auto"), {"temperature": [0.5, 1.0]}, cv=2),
    ],
    expected_failed_checks=known_failures,
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)
