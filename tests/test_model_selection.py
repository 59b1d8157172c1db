"""Searches in batches: the results are those of scikit-learn's searches, bit for bit, however fits are put together."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from scipy.stats import loguniform
from searches import X, assert_equal_results, both, classifier, regressor, y
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BatchedGridSearchCV, BatchedRandomizedSearchCV
from sklearn_sgmcmc.chains import RUNNER
from sklearn_sgmcmc.pooling import CannotPoolError, groups, pooled_stages
from sklearn_sgmcmc.priors import Laplace, Normal, SpikeSlab, StudentT
from sklearn_sgmcmc.samplers import SAMPLERS
from sklearn_sgmcmc.samplers.drift import ASGLD, MSGLD

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X_diabetes, y_diabetes = (part[:90] for part in load_diabetes(return_X_y=True))


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
