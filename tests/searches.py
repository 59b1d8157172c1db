"""Small searches, plain and batched, and the comparison of their results."""

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV

from sklearn_sgmcmc import BatchedGridSearchCV, BayesianMLPClassifier, BayesianMLPRegressor

X, y = load_iris(return_X_y=True)
X, y = X[::2], y[::2]
FAST = {"hidden_layer_sizes": (4,), "max_iter": 4, "batch_size": 16, "n_draws": 3, "random_state": 0}


def classifier(**params):
    return BayesianMLPClassifier(**(FAST | {"sampler": "msgld"} | params))


def regressor(**params):
    return BayesianMLPRegressor(**(FAST | {"sampler": "sghmc"} | params))


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
