"""Same seed, same bits; and the caller's world is left alone."""

import pickle
import threading
from functools import cache

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.model_selection import BatchedGridSearchCV

FAST = {"hidden_layer_sizes": (6,), "max_iter": 40, "n_draws": 5, "random_state": 0}


def problem(estimator, n_rows=80):
    rng = np.random.RandomState(0)
    X = rng.randn(n_rows, 4)
    y = X[:, 0] - X[:, 1] ** 2 + 0.1 * rng.randn(n_rows)
    return X, (y > 0).astype(int) if estimator is BayesianMLPClassifier else y


ESTIMATORS = [BayesianMLPClassifier, BayesianMLPRegressor]
both = pytest.mark.parametrize("estimator", ESTIMATORS)
modes = pytest.mark.parametrize("batch_size", ["auto", 16])


@both
@modes
def test_same_seed_same_bits(estimator, batch_size):
    X, y = problem(estimator)
    one, two = (estimator(batch_size=batch_size, **FAST).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.draws_, two.draws_)


@both
@modes
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_workers_do_not_change_a_bit(estimator, batch_size, activation):
    X, y = problem(estimator, n_rows=77)
    settings = FAST | {"activation": activation, "batch_size": batch_size, "n_chains": 9}
    one, two = (estimator(n_jobs=jobs, **settings).fit(X, y) for jobs in (None, 2))
    np.testing.assert_array_equal(one.draws_, two.draws_)
    np.testing.assert_array_equal(one.potential_curve_, two.potential_curve_)


@pytest.mark.parametrize(("dtype", "n_chains"), [("float32", 5), ("float64", 6), ("float32", 14)])
def test_workers_do_not_change_a_bit_of_a_larger_network(dtype, n_chains):
    X, y = problem(BayesianMLPClassifier)
    settings = FAST | {"hidden_layer_sizes": (30, 20), "dtype": dtype, "n_chains": n_chains}
    one, two = (BayesianMLPClassifier(n_jobs=jobs, **settings).fit(X, y) for jobs in (None, 2))
    np.testing.assert_array_equal(one.draws_, two.draws_)


@modes
def test_the_first_chains_do_not_depend_on_the_number_of_blocks(batch_size):
    X, y = problem(BayesianMLPClassifier)
    few, many = (BayesianMLPClassifier(n_chains=n, batch_size=batch_size, **FAST).fit(X, y) for n in (4, 12))
    np.testing.assert_array_equal(few.draws_, many.draws_[:, :4])


@cache
def fitted_to_many_zeros(estimator, batch_size):
    """Return a model of dense rows with many zeros, the rows and their targets."""
    X, y = problem(estimator)
    X[np.abs(X) < 0.7] = 0.0
    return estimator(batch_size=batch_size, **FAST).fit(X, y), X, y


@both
@modes
@pytest.mark.parametrize(
    "container", [scipy.sparse.csr_array, scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_matrix]
)
def test_sparse_and_dense_fits_are_bit_equal(estimator, batch_size, container):
    dense, X, y = fitted_to_many_zeros(estimator, batch_size)
    sparse = estimator(batch_size=batch_size, **FAST).fit(container(X), y)
    np.testing.assert_array_equal(dense.draws_, sparse.draws_)
    np.testing.assert_array_equal(dense.predict(X), sparse.predict(container(X)))


@both
def test_row_order_does_not_matter_at_full_batch(estimator):
    X, y = problem(estimator)
    order = np.random.RandomState(1).permutation(len(X))
    one, two = estimator(**FAST).fit(X, y), estimator(**FAST).fit(X[order], y[order])
    np.testing.assert_array_equal(one.draws_, two.draws_)


@both
@pytest.mark.parametrize("unit", [1.0, 0.1])
def test_weight_k_equals_k_repeats_bit_for_bit_at_full_batch(estimator, unit):
    X, y = problem(estimator)
    counts = np.random.RandomState(1).randint(0, 4, len(X))
    weighted = estimator(**FAST).fit(X, y, sample_weight=unit * counts)
    repeated = estimator(**FAST).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts), sample_weight=np.full(counts.sum(), unit))
    np.testing.assert_array_equal(weighted.draws_, repeated.draws_)


@both
def test_zero_weight_rows_are_as_if_absent_in_minibatches(estimator):
    X, y = problem(estimator)
    weight = (np.arange(len(X)) % 3 > 0).astype(float)
    one = estimator(batch_size=16, **FAST).fit(X, y, sample_weight=weight)
    two = estimator(batch_size=16, **FAST).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_array_equal(one.draws_, two.draws_)


@both
def test_fit_leaves_global_state_alone(estimator):
    X, y = problem(estimator)
    torch.manual_seed(5)
    np.random.seed(5)
    before = (torch.get_rng_state(), np.random.get_state()[1].copy(), torch.get_num_threads(), torch.get_default_dtype())
    with torch.enable_grad():
        model = estimator(**FAST).fit(X, y)
        model.predict(X)
        assert torch.is_grad_enabled()
    after = (torch.get_rng_state(), np.random.get_state()[1], torch.get_num_threads(), torch.get_default_dtype())
    assert torch.equal(before[0], after[0])
    np.testing.assert_array_equal(before[1], after[1])
    assert before[2:] == after[2:]


def test_a_failing_fit_restores_the_thread_count():
    X, y = problem(BayesianMLPRegressor)
    torch.set_num_threads(2)
    try:
        with pytest.raises(ValueError, match="learning_rate"):
            BayesianMLPRegressor(learning_rate=1e3, **FAST).fit(X, y)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_default_dtype_of_the_caller_does_not_matter():
    X, y = problem(BayesianMLPClassifier)
    one = BayesianMLPClassifier(**FAST).fit(X, y)
    torch.set_default_dtype(torch.float64)
    try:
        two = BayesianMLPClassifier(**FAST).fit(X, y)
        np.testing.assert_array_equal(one.draws_, two.draws_)
        np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@both
@pytest.mark.parametrize("of_caller", [torch.device("meta"), torch.autocast("cpu", torch.bfloat16)], ids=["device", "autocast"])
def test_default_device_and_lower_precision_of_the_caller_do_not_matter(estimator, of_caller):
    """The device "meta" stands for any other than the CPU; it computes nothing."""
    X, y = problem(estimator)
    classes = {"classes": [0, 1]} if estimator is BayesianMLPClassifier else {}

    def results():
        model = estimator(**FAST).fit(X, y)
        search = BatchedGridSearchCV(estimator(**FAST), {"prior_scale": [0.5, 1.0]}, cv=2, error_score="raise").fit(X, y)
        return (
            (model.predict(X), model.sample_posterior(X), model.diagnostics().r_hat, search.cv_results_["mean_test_score"]),
            estimator(**FAST).partial_fit(X, y, **classes).predict(X),
        )

    expected = results()
    with of_caller:
        found = results()
    np.testing.assert_equal(found, expected)


def test_fits_in_threads_equal_fits_in_turn():
    X, y = problem(BayesianMLPClassifier)
    models = [BayesianMLPClassifier(**FAST).set_params(random_state=seed) for seed in range(4)]
    alone = [clone(model).fit(X, y).draws_ for model in models]
    threads = [threading.Thread(target=model.fit, args=(X, y)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model, draws in zip(models, alone, strict=True):
        np.testing.assert_array_equal(model.draws_, draws)


@both
def test_pickle_is_small_and_holds_neither_data_nor_tensors(estimator):
    X, y = problem(estimator, n_rows=5000)
    model = estimator((20,), batch_size=100, max_iter=2, random_state=0, n_draws=20).fit(X, y)
    data = pickle.dumps(model)
    assert len(data) <= model.draws_.nbytes + model.potential_curve_.nbytes + 50_000
    assert b"torch" not in data


PREDICTIONS = [
    (BayesianMLPClassifier, "predict", {}),
    (BayesianMLPClassifier, "predict_proba", {"return_std": True}),
    (BayesianMLPClassifier, "predict_log_proba", {}),
    (BayesianMLPClassifier, "predict_uncertainty", {}),
    (BayesianMLPClassifier, "sample_posterior", {"n_draws": 3, "random_state": 1}),
    (BayesianMLPRegressor, "predict", {"return_std": True}),
    (BayesianMLPRegressor, "predict_noise", {}),
    (BayesianMLPRegressor, "predict_uncertainty", {}),
    (BayesianMLPRegressor, "predict_quantiles", {"quantiles": [0.1, 0.5, 0.975]}),
    (BayesianMLPRegressor, "predict_interval", {"coverage": 0.8}),
    (BayesianMLPRegressor, "predict_mixture", {}),
    (BayesianMLPRegressor, "sample_posterior", {"n_draws": 3, "random_state": 1}),
    (BayesianMLPRegressor, "log_predictive_density", {"y": None}),
    (BayesianMLPRegressor, "sample_y", {"n_samples": 3}),
]
"""Every prediction and its arguments; y of None is the rows' own targets."""
DRAWS_FIRST = ("sample_posterior", "predict_mixture", "predict_quantiles")
predictions = pytest.mark.parametrize(("estimator", "method", "arguments"), PREDICTIONS)


@cache
def fitted(estimator):
    """Return a model, for predictions alone, and its rows."""
    X, y = problem(estimator)
    return estimator(**FAST).fit(X, y), X, y


def arrays(model, method, arguments, X, y):
    """Return the arrays of a prediction, rows first."""
    found = getattr(model, method)(X, **{name: y if value is None else value for name, value in arguments.items()})
    found = found if isinstance(found, tuple) else tuple(found.values()) if isinstance(found, dict) else (found,)
    return [np.moveaxis(array, 1, 0) if method in DRAWS_FIRST else array for array in found]


def test_no_prediction_is_missing_from_the_list():
    for estimator in (BayesianMLPClassifier, BayesianMLPRegressor):
        methods = {name for name in dir(estimator) if name.startswith(("predict", "sample_", "log_predictive"))}
        assert methods == {method for owner, method, _ in PREDICTIONS if owner is estimator}


@predictions
def test_two_calls_of_a_prediction_are_identical(estimator, method, arguments):
    model, X, y = fitted(estimator)
    for first, second in zip(arrays(model, method, arguments, X, y), arrays(model, method, arguments, X, y), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-7)])
@pytest.mark.parametrize(("estimator", "method", "arguments"), PREDICTIONS[:-1])  # samples of y have noise of their own
def test_one_row_alone_equals_the_same_row_in_a_batch(estimator, method, arguments, dtype, tolerance):
    model, X, y = fitted(estimator)
    X = X.astype(dtype)
    together = arrays(model, method, arguments, X, y)
    for row in range(5):
        alone = arrays(model, method, arguments, X[row : row + 1], y[row : row + 1])
        for one, every in zip(alone, together, strict=True):
            if every.dtype.kind == "i":
                np.testing.assert_array_equal(one[0], every[row])
            else:
                np.testing.assert_allclose(one[0], every[row], rtol=0, atol=tolerance * (1 + abs(every[row]).max()))


@both
def test_a_failed_refit_leaves_the_old_model_whole(estimator):
    X, y = problem(estimator)
    model = estimator(**FAST).fit(X, y)
    before = model.predict(X)
    other = np.where(y > 0, "b", "a") if estimator is BayesianMLPClassifier else 1000 * y + 5
    with pytest.raises(ValueError, match="diverged"):
        model.set_params(learning_rate=1e3).fit(3 * X, other)
    np.testing.assert_array_equal(model.predict(X), before)
