"""Every estimator parameter does something, or is known not to change the draws."""

import inspect
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.priors import Normal
from sklearn_sgmcmc.schedules import Cyclical

BASE = {
    "device": "cpu",
    "learning_rate": 0.02,
    "hidden_layer_sizes": (4,),
    "max_iter": 20,
    "n_draws": 4,
    "n_chains": 5,
    "batch_size": 8,
    "random_state": 0,
}

CHANGES = {
    "hidden_layer_sizes": (3,),
    "activation": "tanh",
    "sampler": "sgld",
    "temperature": 0.5,
    "learning_rate": 0.01,
    "schedule": Cyclical(n_cycles=2),
    "warm_up": 3,
    "max_iter": 21,
    "burn_in": 0.2,
    "n_draws": 5,
    "n_chains": 6,
    "batch_size": 9,
    "prior": Normal(scale=0.5),
    "prior_scale": 0.7,
    "standardize": False,
    "dtype": "float64",
    "random_state": 1,
    "bias_factor": 3.0,
    "class_weight": {0: 1.0, 1: 2.0},
    "noise": 2.0,
    "normalize_y": False,
}
SAME = {"n_jobs": 2, "warm_start": True, "verbose": 1, "device": "cpu", "checkpoint": Path(tempfile.mkdtemp())}

CASES = [
    (estimator, name)
    for estimator in (BayesianMLPClassifier, BayesianMLPRegressor)
    for name in inspect.signature(estimator).parameters
]


def draws(estimator, **params):
    rng = np.random.RandomState(0)
    X = rng.randn(30, 3) * [1.0, 5.0, 0.1] + 2.0
    y = (X[:, 0] > 2).astype(float) if estimator is BayesianMLPClassifier else 3.0 * X[:, 0] + rng.randn(30)
    settings = BASE | params
    if "bias_factor" in params:
        settings["sampler"] = "msgld"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator(**settings).fit(X, y).draws_


@pytest.mark.parametrize(("estimator", "name"), CASES)
def test_parameter_changes_the_draws_or_leaves_them_bit_equal(estimator, name):
    change = {"bias_factor": 1.0} if name == "bias_factor" else {}
    before = draws(estimator, **change)
    if name in SAME:
        np.testing.assert_array_equal(draws(estimator, **{name: SAME[name]}), before)
    else:
        after = draws(estimator, **{name: CHANGES[name]})
        assert after.shape != before.shape or (after != before).any()


def test_shared_parameters_are_declared_once():
    classifier, regressor = (set(inspect.signature(e).parameters) for e in (BayesianMLPClassifier, BayesianMLPRegressor))
    assert classifier - regressor == {"class_weight"}
    assert regressor - classifier == {"noise", "normalize_y"}


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_every_parameter_is_described(estimator):
    for name in inspect.signature(estimator).parameters:
        assert f"    {name} : " in estimator.__doc__
