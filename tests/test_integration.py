"""Inside scikit-learn's own machinery."""

import warnings

import numpy as np
import pytest
import sklearn
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris
from sklearn.ensemble import AdaBoostClassifier, BaggingRegressor, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.samplers import MSGLD, SGHMC
from sklearn_sgmcmc.schedules import Cyclical, StepDecay

FAST = {"hidden_layer_sizes": (5,), "max_iter": 60, "n_draws": 5, "random_state": 0}
X, LABEL = load_iris(return_X_y=True)
Y = X[:, 0] + 10 * X[:, 2]
classifier = BayesianMLPClassifier(**FAST)
regressor = BayesianMLPRegressor(**FAST)


def test_grid_over_bias_factor_and_temperature_in_a_pipeline():
    pipe = make_pipeline(StandardScaler(), BayesianMLPClassifier(sampler="msgld", **FAST))
    grid = {"bayesianmlpclassifier__bias_factor": [0, 1, 10], "bayesianmlpclassifier__temperature": [0.01, 1]}
    search = GridSearchCV(pipe, grid, cv=3, scoring="neg_log_loss", error_score="raise").fit(X, LABEL)
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) == 6
    proba, std = search.best_estimator_.predict_proba(X, return_std=True)
    assert proba.shape == std.shape == (150, 3)


def test_two_jobs_give_the_scores_of_one():
    grid = {"bias_factor": [0, 1], "batch_size": ["auto", 32]}
    searches = [
        GridSearchCV(BayesianMLPClassifier(sampler="msgld", **FAST), grid, cv=2, n_jobs=n, scoring="neg_log_loss").fit(X, LABEL)
        for n in (1, 2)
    ]
    one, two = (search.cv_results_["mean_test_score"] for search in searches)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(searches[0].best_estimator_.draws_, searches[1].best_estimator_.draws_)


def test_grid_over_samplers_and_bias_factor_fails_only_where_the_sampler_has_no_bias_term():
    grid = {"sampler": ["sgld", "sghmc", "msgld"], "bias_factor": [0, 1]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = GridSearchCV(classifier, grid, cv=2).fit(X, LABEL)
    failed = [
        (params["sampler"], params["bias_factor"])
        for params, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True)
        if np.isnan(score)
    ]
    assert failed == [("sgld", 1), ("sghmc", 1)] or sorted(failed) == [("sghmc", 1), ("sgld", 1)]


def test_fields_of_a_sampler_object_can_be_searched():
    grid = {"sampler__bias_factor": [0.0, 2.0], "sampler__smoothing": [0.5, 0.9]}
    search = GridSearchCV(BayesianMLPClassifier(sampler=MSGLD(), **FAST), grid, cv=2, scoring="neg_log_loss").fit(X, LABEL)
    assert len({round(score, 12) for score in search.cv_results_["mean_test_score"]}) == 3  # at a = 0 smoothing has no effect


def test_sampler_and_schedule_objects_can_be_searched():
    grid = {"sampler": [SGHMC(0.1), "sgld"], "schedule": ["constant", StepDecay(), Cyclical(n_cycles=2)]}
    search = GridSearchCV(classifier, grid, cv=2, error_score="raise").fit(X, LABEL)
    assert len(search.cv_results_["params"]) == 6
    assert "SGHMC(friction=0.1" in str(search.cv_results_["params"][0])


def test_randomized_search():
    space = {"learning_rate": loguniform(1e-3, 1e-1), "prior_scale": [0.5, 1.0]}
    search = RandomizedSearchCV(classifier, space, n_iter=3, cv=2, random_state=0, error_score="raise").fit(X, LABEL)
    assert search.best_score_ > 0.5


def test_cross_validation():
    assert cross_val_predict(classifier, X, LABEL, cv=3, method="predict_proba").shape == (150, 3)
    assert (
        cross_val_score(BayesianMLPRegressor((5,), random_state=0), X, Y, cv=KFold(3, shuffle=True, random_state=0)) > 0.5
    ).all()


def test_std_travels_through_a_pipeline():
    mean, std = make_pipeline(StandardScaler(), regressor).fit(X, Y).predict(X, return_std=True)
    assert (std > 0).all()
    assert mean.shape == std.shape


def test_voting():
    vote = VotingClassifier([("bayes", classifier), ("linear", LogisticRegression(max_iter=500))], voting="soft").fit(X, LABEL)
    assert vote.score(X, LABEL) > 0.9


def test_bagging():
    assert BaggingRegressor(regressor, n_estimators=3, random_state=0).fit(X, Y).predict(X).shape == (150,)


def test_calibration():
    proba = CalibratedClassifierCV(classifier, cv=2).fit(X, LABEL).predict_proba(X)
    np.testing.assert_allclose(proba.sum(1), 1)


def test_transformed_target():
    model = TransformedTargetRegressor(regressor, func=np.log, inverse_func=np.exp).fit(X, Y)
    assert (model.predict(X) > 0).all()
    assert model.regressor_.predict(X, return_std=True)[1].shape == (150,)


OF_CLASSES = {"predict_proba": {"return_std": True}, "predict_uncertainty": {}, "sample_posterior": {}, "predict_log_proba": {}}
OF_TARGETS = {
    "predict": {"return_std": True},
    "predict_uncertainty": {},
    "predict_quantiles": {"quantiles": [0.1, 0.9]},
    "predict_interval": {"coverage": 0.5},
    "predict_mixture": {},
    "sample_posterior": {},
    "sample_y": {"n_samples": 2},
}


def same(left, right):
    pairs = zip(left, right, strict=True) if isinstance(left, tuple) else [(left, right)]
    pairs = [(left[key], right[key]) for key in left] if isinstance(left, dict) else pairs
    return all(np.array_equal(one, other) for one, other in pairs)


@pytest.mark.parametrize(("estimator", "y", "methods"), [(classifier, LABEL, OF_CLASSES), (regressor, Y, OF_TARGETS)])
def test_every_prediction_is_reached_through_a_search_over_a_pipeline(estimator, y, methods):
    pipe = make_pipeline(StandardScaler(), estimator)
    grid = {f"{pipe.steps[-1][0]}__prior_scale": [1.0]}
    best = GridSearchCV(pipe, grid, cv=2, error_score="raise").fit(X, y).best_estimator_
    direct = clone(estimator).set_params(prior_scale=1.0).fit(StandardScaler().fit_transform(X), y)
    Z = best[:-1].transform(X)
    for method, arguments in methods.items():
        assert same(getattr(best[-1], method)(Z, **arguments), getattr(direct, method)(Z, **arguments))
    assert same(best[-1].diagnostics().r_hat, direct.diagnostics().r_hat)
    assert best[-1].summary() == direct.summary()


def test_every_prediction_is_reached_behind_a_transformed_target():
    model = TransformedTargetRegressor(regressor, func=np.log, inverse_func=np.exp).fit(X, Y)
    direct = clone(regressor).fit(X, np.log(Y))
    for method, arguments in OF_TARGETS.items():
        assert same(getattr(model.regressor_, method)(X, **arguments), getattr(direct, method)(X, **arguments))
    assert same(model.regressor_.log_predictive_density(X, np.log(Y)), direct.log_predictive_density(X, np.log(Y)))


def test_adaboost_can_pass_its_weights_and_is_told_that_they_sum_to_one_row():
    boost = AdaBoostClassifier(classifier, n_estimators=2, random_state=0)
    with pytest.warns(UserWarning, match=r"sums to 1 over 150 rows.* pass w \* n / w.sum\(\), n=150"):
        boost.fit(X, LABEL)
    assert boost.predict(X).shape == (150,)


@pytest.mark.parametrize(("estimator", "y"), [(classifier, LABEL), (regressor, Y)])
def test_metadata_routing_of_weights_and_std(estimator, y):
    with sklearn.config_context(enable_metadata_routing=True):
        model = BayesianMLPClassifier(**FAST) if estimator is classifier else BayesianMLPRegressor(**FAST)
        model.set_fit_request(sample_weight=True)
        if estimator is classifier:
            model.set_predict_proba_request(return_std=True)
        else:
            model.set_predict_request(return_std=True)
        weight = 1.0 + (np.arange(150) % 3)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipe = make_pipeline(scaler, model).fit(X, y, sample_weight=weight)
        predict = pipe.predict_proba if estimator is classifier else pipe.predict
        mean, std = predict(X, return_std=True)
        assert mean.shape == std.shape
        direct = type(model)(**FAST).fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
        np.testing.assert_array_equal(pipe[-1].draws_, direct.draws_)
