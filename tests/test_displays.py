"""Displays: what is drawn equals an independent computation; figures are drawn without a screen."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.calibration import calibration_curve
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.displays import (
    ConvergenceDisplay,
    CoverageDisplay,
    DecisionMapDisplay,
    PotentialDisplay,
    PredictiveBandDisplay,
    ProbabilitySpreadDisplay,
    RejectionDisplay,
    ReliabilityDisplay,
    TraceDisplay,
)

mpl.use("Agg")
import matplotlib.pyplot as plt

FAST = {"hidden_layer_sizes": (4,), "max_iter": 60, "n_draws": 5, "n_chains": 3, "random_state": 0}
RNG = np.random.RandomState(0)
X = RNG.randn(80, 2)
LABEL = np.array(["blue", "green", "red"])[np.digitize(X[:, 0] + 0.5 * RNG.randn(80), [-0.5, 0.5])]
X1 = RNG.rand(80, 1)
Y = np.sin(3 * X1[:, 0]) + 0.1 * RNG.randn(80)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def classifier():
    return make_pipeline(StandardScaler(), BayesianMLPClassifier(**FAST)).fit(X, LABEL)


@pytest.fixture(scope="module")
def regressor():
    return make_pipeline(StandardScaler(), BayesianMLPRegressor(**FAST)).fit(X1, Y)


@pytest.fixture(scope="module")
def multi():
    return BayesianMLPRegressor(**FAST).fit(X, X + 0.1 * RNG.randn(80, 2))


# --- calibration -------------------------------------------------------------------------------------------------------------


def test_reliability_of_the_surer_class_is_scikit_learns_calibration_curve():
    p = 0.5 + 0.5 * RNG.rand(200)
    y = RNG.randint(2, size=200)
    display = ReliabilityDisplay.from_predictions(y, np.column_stack([1 - p, p]), labels=[0, 1], n_bins=7)
    accuracy, confidence = calibration_curve(y, p, n_bins=7)
    np.testing.assert_allclose(display.line_.get_xdata(), confidence)
    np.testing.assert_allclose(display.line_.get_ydata(), accuracy)


def test_reliability_bars_count_the_rows_of_their_bins():
    proba = [[0.95, 0.05]] * 3 + [[0.35, 0.65]] * 2
    display = ReliabilityDisplay.from_predictions([0, 0, 1, 1, 1], proba, labels=[0, 1], n_bins=10)
    assert [bar.get_height() for bar in display.bars_] == [2, 3]
    np.testing.assert_allclose([bar.get_center()[0] for bar in display.bars_], [0.65, 0.95])


def test_reliability_draws_any_classifier():
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, LABEL)
    display = ReliabilityDisplay.from_estimator(model, X, LABEL)
    assert display.accuracy @ display.count / 80 == pytest.approx(model.score(X, LABEL))


def test_coverage_counts_targets_in_predict_interval(regressor):
    display = CoverageDisplay.from_estimator(regressor, X1, Y, coverages=[0.3, 0.8])
    inner = regressor[-1]
    for level, share in zip([0.3, 0.8], display.lines_[0].get_ydata(), strict=True):
        lower, upper = inner.predict_interval(regressor[0].transform(X1), level)
        assert share == pytest.approx(100 * np.mean((lower <= Y) & (upper >= Y)))


def test_coverage_has_a_line_for_each_output(multi):
    display = CoverageDisplay.from_estimator(multi, X, X)
    lower, upper = multi.predict_interval(X, 0.5)
    assert len(display.lines_) == 2
    np.testing.assert_allclose(display.observed[display.nominal == 0.5][0], ((lower <= X) & (upper >= X)).mean(axis=0))


def test_coverage_of_any_intervals():
    mean, std = np.zeros(50), np.ones(50)
    y = RNG.randn(50)
    half = norm.ppf([0.6, 0.9])[:, None] * std
    display = CoverageDisplay.from_predictions(y, mean - half, mean + half, coverages=[0.2, 0.8])
    np.testing.assert_allclose(display.observed[:, 0], [np.mean(np.abs(y) <= h[0]) for h in half])


# --- classification ----------------------------------------------------------------------------------------------------------


def test_rejection_leaves_out_the_most_uncertain_rows(classifier):
    display = RejectionDisplay.from_estimator(classifier, X, LABEL, uncertainty="epistemic")
    doubt = classifier[-1].predict_uncertainty(classifier[0].transform(X)).epistemic
    right = classifier.predict(X) == LABEL
    for rejected in (0, 20, 60):
        kept = np.argsort(doubt)[: 80 - rejected]
        assert display.line_.get_ydata()[rejected] == pytest.approx(100 * right[kept].mean())
        assert display.line_.get_xdata()[rejected] == pytest.approx(100 * rejected / 80)


def test_several_curves_share_axes(classifier):
    first = RejectionDisplay.from_estimator(classifier, X, LABEL)
    second = RejectionDisplay.from_estimator(classifier, X, LABEL, uncertainty="aleatoric", ax=first.ax_, color="red")
    assert second.ax_ is first.ax_
    assert second.figure_ is first.figure_
    assert second.line_.get_color() == "red"


def test_map_shows_prediction_and_mutual_information_on_a_grid(classifier):
    display = DecisionMapDisplay.from_estimator(classifier, X, LABEL, n_grid=7)
    corner = [[display.x0[5], display.x1[2]]]
    assert display.classes[display.decision[2, 5]] == classifier.predict(corner)[0]
    mutual = classifier[-1].predict_uncertainty(classifier[0].transform(corner)).epistemic[0]
    assert display.shade_.get_array()[2, 5] == pytest.approx(mutual)


def test_map_labels_its_axes_with_the_columns_of_a_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["height", "width"])
    model = BayesianMLPClassifier(**FAST).fit(frame, LABEL)
    display = DecisionMapDisplay.from_estimator(model, frame, n_grid=5)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("height", "width")


def test_spread_draws_the_median_of_the_draws(classifier):
    display = ProbabilitySpreadDisplay.from_estimator(classifier, X[:4])
    draws = classifier[-1].sample_posterior(classifier[0].transform(X[:4]))
    for k, boxes in enumerate(display.boxes_):
        medians = [line.get_ydata()[0] for line in boxes["medians"]]
        np.testing.assert_allclose(medians, np.median(draws[:, :, k], axis=0))


# --- regression --------------------------------------------------------------------------------------------------------------


def test_bands_are_the_quantiles_of_draws_and_of_the_predictive(regressor):
    display = PredictiveBandDisplay.from_estimator(regressor, X1, Y, coverage=0.8, n_grid=9)
    grid = regressor[0].transform(display.x[:, None])
    np.testing.assert_allclose(display.line_.get_ydata(), regressor.predict(display.x[:, None]))
    np.testing.assert_allclose(display.total, regressor[-1].predict_interval(grid, 0.8))
    np.testing.assert_allclose(display.epistemic, np.quantile(regressor[-1].sample_posterior(grid), [0.1, 0.9], axis=0))


def test_bands_reach_beyond_the_rows(regressor):
    x = PredictiveBandDisplay.from_estimator(regressor, X1).x
    assert x[0] < X1.min() < X1.max() < x[-1]


# --- chains ------------------------------------------------------------------------------------------------------------------


def test_potential_has_a_line_for_each_chain_from_the_first_step_to_the_last(regressor):
    display = PotentialDisplay.from_estimator(regressor)
    curve = regressor[-1].potential_curve_
    for line, chain in zip(display.lines_, curve.T, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), chain)
    assert display.lines_[0].get_xdata()[[0, -1]].tolist() == [0, regressor[-1].n_steps_]


def test_traces_follow_chains_through_their_draws(regressor):
    display = TraceDisplay.from_estimator(regressor, X1[:2])
    draws = regressor[-1].sample_posterior(regressor[0].transform(X1[:2]))
    assert len(display.axes_) == 2
    for row in range(2):
        for chain in range(3):
            np.testing.assert_array_equal(display.lines_[row][chain].get_ydata(), draws[chain::3, row])


def test_traces_of_a_classifier_show_its_most_probable_class(classifier):
    display = TraceDisplay.from_estimator(classifier, X[:1])
    mean = np.mean([line.get_ydata() for line in display.lines_[0]])
    assert mean == pytest.approx(classifier.predict_proba(X[:1]).max())


# --- conventions -------------------------------------------------------------------------------------------------------------


def test_displays_go_through_a_search():
    search = GridSearchCV(make_pipeline(StandardScaler(), BayesianMLPRegressor(**FAST)), {}, cv=2).fit(X1, Y)
    by_search = CoverageDisplay.from_estimator(search, X1, Y)
    np.testing.assert_array_equal(by_search.observed, CoverageDisplay.from_estimator(search.best_estimator_, X1, Y).observed)


def test_plot_draws_again_on_other_axes(classifier):
    display = ReliabilityDisplay.from_estimator(classifier, X, LABEL)
    _, ax = plt.subplots()
    assert display.plot(ax, color="green").ax_ is ax
    assert display.line_.get_color() == "green"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: DecisionMapDisplay.from_estimator(m, X1), "X has 1 columns"),
        (lambda m: PredictiveBandDisplay.from_estimator(m, X), "X has 2 columns"),
        (lambda m: ProbabilitySpreadDisplay.from_estimator(m, X), "X has 80 rows"),
        (lambda m: ProbabilitySpreadDisplay.from_predictions(np.ones((3, 2)), labels=[0, 1]), "proba has shape"),
        (lambda m: ProbabilitySpreadDisplay.from_predictions(np.full((3, 2, 2), np.nan), labels=[0, 1]), "no probability"),
        (lambda m: RejectionDisplay.from_estimator(m, X, LABEL, uncertainty="all"), "uncertainty='all'"),
        (lambda m: RejectionDisplay.from_estimator(m, X, LABEL[:3]), "inconsistent numbers of samples"),
        (lambda m: RejectionDisplay.from_predictions(LABEL, LABEL[:1], Y), "inconsistent numbers of samples"),
        (lambda m: CoverageDisplay.from_predictions([1.0], [], [], coverages=[]), "coverages=.* is empty"),
        (lambda m: CoverageDisplay.from_predictions([1.0], [[0.0]], [[2.0]], coverages=[0.5, 0.9]), "coverages 2"),
        (lambda m: CoverageDisplay.from_predictions([1.0], [[0.0]], [[2.0]], coverages=[90]), "coverages=90"),
        (lambda m: TraceDisplay.from_estimator(m, X[:3], ax=plt.subplots(2)[1]), "ax holds 2 axes"),
    ],
)
def test_errors_name_the_parameter_and_the_rule(call, message, classifier):
    with pytest.raises(ValueError, match=message):
        call(classifier)


def test_points_beside_bands_need_a_target_each():
    model = BayesianMLPRegressor(**FAST).fit(X1, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        PredictiveBandDisplay.from_estimator(model, X1, Y[:3])


def test_a_transformed_target_is_an_error_that_names_the_way_out():
    model = TransformedTargetRegressor(BayesianMLPRegressor(**FAST), func=np.exp, inverse_func=np.log).fit(X1, Y)
    with pytest.raises(AttributeError, match="pass its regressor_"):
        PredictiveBandDisplay.from_estimator(model, X1, Y)


@pytest.mark.parametrize(
    ("func", "inverse"), [(np.exp, np.log), (lambda y: np.exp(-y), lambda z: -np.log(z))], ids=["rising", "falling"]
)
def test_what_a_monotone_transformation_of_the_target_leaves_alone_is_drawn(func, inverse):
    model = TransformedTargetRegressor(BayesianMLPRegressor(**FAST), func=func, inverse_func=inverse).fit(X1, Y)
    levels = [0.3, 0.5, 0.9]
    found = CoverageDisplay.from_estimator(model, X1, Y, coverages=levels)
    expected = CoverageDisplay.from_estimator(model.regressor_, X1, func(Y), coverages=levels)
    np.testing.assert_allclose(found.observed, expected.observed)
    for display in (PotentialDisplay, ConvergenceDisplay):
        display.from_estimator(model)


def test_matplotlib_is_not_imported_with_the_package():
    code = "import sys, sklearn_sgmcmc, sklearn_sgmcmc.displays; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_convergence_display_shows_the_diagnostics_worst_first(classifier):
    found = classifier[-1].diagnostics()
    display = ConvergenceDisplay.from_estimator(classifier)
    order = np.argsort(-found.r_hat)
    np.testing.assert_array_equal(display.r_hat_.get_ydata(), found.r_hat[order])
    np.testing.assert_array_equal(np.sort(display.ess_tail_.get_ydata()), np.sort(found.ess_tail))
    assert len(display.axes_) == 2


def test_convergence_display_draws_on_axes_that_exist(regressor):
    figure, axes = plt.subplots(1, 2)
    assert ConvergenceDisplay.from_estimator(regressor, ax=axes).figure_ is figure
    with pytest.raises(ValueError, match="give two"):
        ConvergenceDisplay.from_estimator(regressor, ax=axes[:1])


@pytest.mark.parametrize(("settings", "why"), [({"sampler": "adam"}, "optimiser"), ({"n_chains": 1}, "n_chains >= 2")])
def test_convergence_display_says_why_there_is_no_r_hat(settings, why):
    with pytest.raises(ValueError, match=why):
        ConvergenceDisplay.from_estimator(BayesianMLPRegressor(**FAST | settings).fit(X1, Y))
