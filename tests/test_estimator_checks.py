"""scikit-learn's own checks: no expected failures, no tags that switch checks off."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.samplers import SAMPLERS

SMALL = {"hidden_layer_sizes": (10,), "warm_up": 0}
"""The one net with which every sampler takes every check."""
PLAIN = {
    BayesianMLPClassifier: {"max_iter": 50},
    BayesianMLPRegressor: {"max_iter": 100, "noise": "homoscedastic", "prior": "normal"},
}
"""The simplest model; that of the defaults is checked by itself."""

ESTIMATORS = (BayesianMLPClassifier, BayesianMLPRegressor)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([estimator() for estimator in ESTIMATORS])
def test_default_estimator_passes(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([estimator(sampler=name, **SMALL, **PLAIN[estimator]) for estimator in ESTIMATORS for name in SAMPLERS])
def test_every_sampler_passes(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([BayesianMLPRegressor(max_iter=100, noise="heteroscedastic", **SMALL)])
def test_heteroscedastic_regressor_passes(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_tag_switches_a_check_off(estimator):
    tags = estimator().__sklearn_tags__()
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert not getattr(tags, "_skip_test", False)
    specific = tags.classifier_tags or tags.regressor_tags
    assert not specific.poor_score
