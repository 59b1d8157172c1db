"""scikit-learn's own checks: no expected failures, no tags that switch checks off."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.samplers import SAMPLERS

ESTIMATORS = (BayesianMLPClassifier, BayesianMLPRegressor)

SHORT = {"warm_up": 50, "max_iter": 100}
"""All stages of the defaults in a tenth of their steps. On inputs, bits and attributes a check says no more after more of them, and
its scores are harder to reach after fewer; those of the very defaults are in test_defaults.py."""
SMALL = {"hidden_layer_sizes": (10,), "warm_up": 0, "n_draws": 10}
"""The one net with which every sampler takes every check. Of so few draws no R-hat is computed: default models take that path."""
PLAIN = {
    BayesianMLPClassifier: {"max_iter": 50},
    BayesianMLPRegressor: {"max_iter": 100, "noise": "homoscedastic", "prior": "normal"},
}
"""The simplest model; that of the defaults is checked by itself."""
COSTLY = {name: {"burn_in": 0.1} for name in ("nr_sgld_hessian", "nr_sgld_spsa2")}
"""Samplers a step of which takes some ten gradients in burn-in, where they adapt, and one afterwards."""

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@parametrize_with_checks([estimator(**SHORT) for estimator in ESTIMATORS])
def test_default_model_passes(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([estimator() for estimator in ESTIMATORS])
def test_default_estimator_passes(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [estimator(sampler=name, **SMALL, **PLAIN[estimator], **COSTLY.get(name, {})) for estimator in ESTIMATORS for name in SAMPLERS]
)
def test_every_sampler_passes(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_tag_switches_a_check_off(estimator):
    tags = estimator().__sklearn_tags__()
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert not getattr(tags, "_skip_test", False)
    specific = tags.classifier_tags or tags.regressor_tags
    assert not specific.poor_score
