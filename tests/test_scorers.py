"""Scorers and the mixture that they score: inside searches, Pipelines and transformed targets."""

import pickle

import numpy as np
import pytest
import sklearn.metrics
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor, metrics
from sklearn_sgmcmc.metrics import (
    UncertaintyScorer,
    brier_loss,
    coverage_scorer,
    expected_calibration_error,
    gaussian_crps,
    interval_coverage,
    interval_score,
    log_density_scorer,
    mixture_crps,
    mixture_log_loss,
    neg_brier_loss_scorer,
    neg_calibration_error_scorer,
    neg_crps_scorer,
    neg_interval_score_scorer,
    neg_log_loss_scorer,
)

FAST = {"hidden_layer_sizes": (4,), "max_iter": 60, "n_draws": 5, "n_chains": 2, "random_state": 0}
RNG = np.random.RandomState(0)
X = RNG.randn(90, 3)
LABEL = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.3 * RNG.randn(90), [-0.5, 0.5])]
Y = 30 + 2 * X[:, 0] + 0.3 * RNG.randn(90)
YY = np.column_stack([Y, 100 * X[:, 1]])
WEIGHT = RNG.randint(0, 4, 90)


@pytest.fixture(scope="module")
def regressor():
    return BayesianMLPRegressor(noise="heteroscedastic", **FAST).fit(X, Y)


@pytest.fixture(scope="module")
def multi():
    return BayesianMLPRegressor(**FAST).fit(X, YY)


@pytest.fixture(scope="module")
def classifier():
    return BayesianMLPClassifier(**FAST).fit(X, LABEL)


# --- the regressor's mixture -------------------------------------------------------------------------------------------------


def test_mixture_has_the_mean_and_spread_of_predict(regressor):
    mean, std = regressor.predict_mixture(X)
    assert mean.shape == std.shape == (10, 90)
    np.testing.assert_allclose(mean, regressor.sample_posterior(X), rtol=1e-12)
    predicted, total = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(mean.mean(axis=0), predicted, rtol=1e-12)
    np.testing.assert_allclose(mean.var(axis=0) + (std**2).mean(axis=0), total**2, rtol=1e-9)


def test_mixture_log_loss_is_minus_the_log_predictive_density(multi):
    assert mixture_log_loss(YY, *multi.predict_mixture(X)) == pytest.approx(-multi.log_predictive_density(X, YY).mean(), rel=1e-12)


# --- scorers -----------------------------------------------------------------------------------------------------------------

REGRESSION = {
    "log density": (log_density_scorer, lambda m, y: m.log_predictive_density(X, y).mean()),
    "crps": (neg_crps_scorer, lambda m, y: -mixture_crps(y, *m.predict_mixture(X))),
    "interval score": (neg_interval_score_scorer, lambda m, y: -interval_score(y, *m.predict_interval(X, 0.9), coverage=0.9)),
    "coverage": (coverage_scorer, lambda m, y: interval_coverage(y, *m.predict_interval(X, 0.9))),
}
CLASSIFICATION = {
    "log loss": (neg_log_loss_scorer, lambda p: -sklearn.metrics.log_loss(LABEL, p)),
    "brier": (neg_brier_loss_scorer, lambda p: -brier_loss(LABEL, p, labels=["a", "b", "c"])),
    "ece": (neg_calibration_error_scorer, lambda p: -expected_calibration_error(LABEL, p, labels=["a", "b", "c"])),
}
ALL = [scorer for scorer, _ in (*REGRESSION.values(), *CLASSIFICATION.values())]


@pytest.mark.parametrize("name", REGRESSION)
def test_scorer_is_the_metric_with_its_sign(name, regressor, multi):
    scorer, expected = REGRESSION[name]
    assert scorer(regressor, X, Y) == pytest.approx(expected(regressor, Y), rel=1e-10)
    assert scorer(multi, X, YY) == pytest.approx(expected(multi, YY), rel=1e-10)


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_class_scorer_is_the_metric_with_its_sign(name, classifier):
    scorer, expected = CLASSIFICATION[name]
    assert scorer(classifier, X, LABEL) == pytest.approx(expected(classifier.predict_proba(X)), rel=1e-10)


@pytest.mark.parametrize("scorer", [scorer for scorer, _ in REGRESSION.values() if scorer is not coverage_scorer])
def test_a_better_regressor_scores_higher(scorer, regressor):
    assert scorer(regressor, X, Y) > scorer(regressor, X, Y[::-1])


@pytest.mark.parametrize("scorer", [scorer for scorer, _ in CLASSIFICATION.values()])
def test_a_better_classifier_scores_higher(scorer, classifier):
    assert scorer(classifier, X, LABEL) > scorer(classifier, X, LABEL[::-1])


def test_weight_k_equals_k_rows_in_a_scorer(regressor):
    repeated = neg_crps_scorer(regressor, np.repeat(X, WEIGHT, axis=0), np.repeat(Y, WEIGHT))
    assert neg_crps_scorer(regressor, X, Y, sample_weight=WEIGHT) == pytest.approx(repeated, rel=1e-12)


def test_rows_may_be_scored_in_chunks(regressor, monkeypatch):
    whole = neg_crps_scorer(regressor, X, Y, sample_weight=np.arange(90) // 20)
    monkeypatch.setattr(metrics._scorers, "CHUNK_ROWS", 17)
    assert neg_crps_scorer(regressor, X, Y, sample_weight=np.arange(90) // 20) == pytest.approx(whole, rel=1e-12)


def test_data_frames_may_be_scored_in_chunks(monkeypatch):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["u", "v", "w"])
    model = BayesianMLPRegressor(**FAST).fit(frame, Y)
    whole = neg_crps_scorer(model, frame, pandas.Series(Y))
    monkeypatch.setattr(metrics._scorers, "CHUNK_ROWS", 17)
    assert neg_crps_scorer(model, frame, pandas.Series(Y)) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("scorer", ALL, ids=lambda scorer: scorer.metric.__name__)
def test_scorers_pickle_and_clone(scorer, regressor, classifier):
    model, y = (classifier, LABEL) if scorer.method == "predict_proba" else (regressor, Y)
    for copy in (pickle.loads(pickle.dumps(scorer)), clone(scorer)):
        assert copy(model, X, y) == scorer(model, X, y)


def test_scorer_goes_through_nested_pipelines_and_searches():
    inner = make_pipeline(StandardScaler(), BayesianMLPRegressor(**FAST))
    search = GridSearchCV(inner, {"bayesianmlpregressor__n_draws": [5]}, cv=2, scoring=neg_crps_scorer)
    outer = make_pipeline(FunctionTransformer(np.negative), search).fit(X, Y)
    fitted = outer[-1].best_estimator_
    by_hand = -mixture_crps(Y, *fitted[-1].predict_mixture(fitted[0].transform(-X)))
    assert neg_crps_scorer(outer, X, Y) == pytest.approx(by_hand, rel=1e-12)


def test_grid_search_takes_the_parameters_of_the_best_mean_score():
    pipe = make_pipeline(StandardScaler(), BayesianMLPRegressor(**FAST))
    grid = {"bayesianmlpregressor__noise": [0.3, 30.0]}
    search = GridSearchCV(pipe, grid, cv=2, scoring=log_density_scorer, n_jobs=2).fit(X, Y)
    assert search.best_params_ == {"bayesianmlpregressor__noise": 0.3}
    assert search.score(X, Y) == pytest.approx(log_density_scorer(search.best_estimator_, X, Y))


def test_cross_validation_is_the_same_in_two_processes():
    model = BayesianMLPClassifier(**FAST)
    one, two = (cross_val_score(model, X, LABEL, cv=2, scoring=neg_brier_loss_scorer, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert np.isfinite(one).all()


def test_several_scorers_at_once():
    scoring = {"crps": neg_crps_scorer, "coverage": coverage_scorer, "r2": "r2"}
    result = cross_validate(BayesianMLPRegressor(**FAST), X, YY, cv=2, scoring=scoring)
    assert all(np.isfinite(result[f"test_{name}"]).all() for name in scoring)


def test_fold_without_a_class_can_be_scored(classifier):
    some = LABEL != "b"
    expected = sklearn.metrics.log_loss(LABEL[some], classifier.predict_proba(X[some]), labels=["a", "b", "c"])
    assert neg_log_loss_scorer(classifier, X[some], LABEL[some]) == pytest.approx(-expected)


def test_weights_are_routed_on_request():
    with config_context(enable_metadata_routing=True):
        model = BayesianMLPRegressor(**FAST).set_fit_request(sample_weight=False)
        asked = clone(neg_crps_scorer).set_score_request(sample_weight=True)
        weighted = cross_validate(
            model, X, Y, cv=2, scoring=asked, params={"sample_weight": np.r_[np.ones(45), np.zeros(44), 1]}, return_estimator=True
        )
        last = neg_crps_scorer(weighted["estimator"][1], X[-1:], Y[-1:])
    assert weighted["test_score"][1] == pytest.approx(last, rel=1e-9)


def test_weights_of_a_search_reach_the_scorers():
    search = GridSearchCV(
        BayesianMLPRegressor(**FAST), {"n_draws": [5]}, cv=2, scoring={"a": neg_crps_scorer, "b": coverage_scorer}, refit="a"
    )
    search.fit(X, Y, sample_weight=np.ones(90))
    assert np.isfinite(search.cv_results_["mean_test_a"]).all()


@pytest.mark.parametrize(("func", "inverse"), [(np.log, np.exp), (np.reciprocal, np.reciprocal)], ids=["rising", "falling"])
def test_intervals_go_through_a_monotone_transformation_of_the_targets(func, inverse):
    model = TransformedTargetRegressor(BayesianMLPRegressor(**FAST), func=func, inverse_func=inverse).fit(X, Y)
    bounds = [inverse(bound) for bound in model.regressor_.predict_interval(X, 0.9)]
    expected = interval_score(Y, np.minimum(*bounds), np.maximum(*bounds), coverage=0.9)
    assert neg_interval_score_scorer(model, X, Y) == pytest.approx(-expected, rel=1e-12)


def test_densities_do_not_go_through_a_transformation_of_the_targets():
    model = TransformedTargetRegressor(BayesianMLPRegressor(**FAST), func=np.log, inverse_func=np.exp).fit(X, Y)
    with pytest.raises(AttributeError, match="transforms y, and predict_mixture"):
        neg_crps_scorer(model, X, Y)


def test_an_estimator_without_the_method_is_named():
    with pytest.raises(AttributeError, match="Ridge in it has none"):
        neg_crps_scorer(make_pipeline(StandardScaler(), Ridge()).fit(X, Y), X, Y)


def test_classifiers_of_scikit_learn_can_be_scored():
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, LABEL)
    assert neg_log_loss_scorer(model, X, LABEL) == pytest.approx(-sklearn.metrics.log_loss(LABEL, model.predict_proba(X)))


def test_a_gaussian_process_can_be_scored_by_its_mean_and_std():
    scorer = UncertaintyScorer(gaussian_crps, "predict", params={"return_std": True})
    model = GaussianProcessRegressor(alpha=0.1).fit(X, Y)
    assert scorer(model, X, Y) == pytest.approx(-gaussian_crps(Y, *model.predict(X, return_std=True)), rel=1e-12)
