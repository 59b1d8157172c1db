"""Predictions agree with each other and with what they are named after."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.metrics import mixture_log_loss
from sklearn_sgmcmc.predictive import mixture_quantile, over_rows

FAST = {"hidden_layer_sizes": (6,), "max_iter": 60, "n_draws": 7, "n_chains": 3, "random_state": 0}
RNG = np.random.RandomState(0)
X = RNG.randn(1500, 4)[:60]
LABEL = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
Y = 3 + 2 * X[:, 0] - X[:, 1] ** 2 + 0.3 * RNG.randn(60)
YY = np.column_stack([Y, 100 * X[:, 2]])


@pytest.fixture(scope="module")
def classifier():
    return BayesianMLPClassifier(**FAST).fit(X, LABEL)


@pytest.fixture(scope="module", params=["homoscedastic", "heteroscedastic", 0.5])
def regressor(request):
    return BayesianMLPRegressor(noise=request.param, **FAST).fit(X, Y)


@pytest.fixture(scope="module")
def multi():
    return BayesianMLPRegressor(**FAST).fit(X, YY)


def test_mean_over_draws_is_predict_proba(classifier):
    proba, std = classifier.predict_proba(X, return_std=True)
    draws = classifier.sample_posterior(X)
    assert draws.shape == (21, 60, 3)
    np.testing.assert_allclose(draws.mean(0), proba, atol=1e-12)
    np.testing.assert_allclose(draws.std(0), std, atol=1e-9)


def test_probabilities_sum_to_one_and_log_proba_is_their_logarithm(classifier):
    proba = classifier.predict_proba(X)
    np.testing.assert_allclose(proba.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), proba, rtol=1e-12)
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[proba.argmax(1)])


def test_class_uncertainty_splits_into_entropy_and_mutual_information(classifier):
    draws = classifier.sample_posterior(X)
    entropy = lambda p: -(p * np.log(p)).sum(-1)  # noqa: E731
    split = classifier.predict_uncertainty(X)
    np.testing.assert_allclose(split.total, entropy(draws.mean(0)), atol=1e-9)
    np.testing.assert_allclose(split.aleatoric, entropy(draws).mean(0), atol=1e-9)
    np.testing.assert_allclose(split.total, split.aleatoric + split.epistemic, atol=1e-12)
    assert (split.epistemic >= -1e-12).all()


def test_numbers_that_underflow_are_zero_whatever_numpy_does_about_them(classifier, regressor):
    with np.errstate(all="raise"):
        classifier.predict_proba((1e4 * X).astype(np.float32), return_std=True)
        density = regressor.log_predictive_density(X, Y + 100)
        assert mixture_log_loss(Y + 100, *regressor.predict_mixture(X)) == pytest.approx(-density.mean(), rel=1e-9)


def test_mean_over_draws_is_predict(regressor):
    draws = regressor.sample_posterior(X)
    assert draws.shape == (21, 60)
    np.testing.assert_allclose(draws.mean(0), regressor.predict(X), atol=1e-10)


def test_variance_splits_into_noise_and_spread_of_the_mean(regressor):
    split = regressor.predict_uncertainty(X)
    np.testing.assert_allclose(split.epistemic, regressor.sample_posterior(X).var(0), atol=1e-9)
    np.testing.assert_allclose(split.aleatoric, regressor.predict_noise(X) ** 2, rtol=1e-9)
    np.testing.assert_allclose(split.total, split.aleatoric + split.epistemic, atol=1e-12)
    np.testing.assert_allclose(regressor.predict(X, return_std=True)[1] ** 2, split.total, rtol=1e-9)


def test_known_noise_is_given_back_in_the_units_of_y():
    model = BayesianMLPRegressor(noise=0.5, **FAST).fit(X, Y)
    np.testing.assert_allclose(model.predict_noise(X), 0.5, rtol=1e-12)


def test_quantiles_invert_the_mixture(regressor):
    levels = [0.01, 0.3, 0.5, 0.95]
    values = regressor.predict_quantiles(X, levels)
    assert values.shape == (4, 60)
    samples = regressor.sample_y(X, 20_000, random_state=1)
    below = (samples[None] < values[..., None]).mean(-1)
    for level, share in zip(levels, below, strict=True):
        assert (abs(share - level) < 5 * (level * (1 - level) / 20_000) ** 0.5).all()


MIXTURES = {
    "overlapping": (RNG.randn(30, 4, 2), np.full((30, 4, 2), 0.5)),
    "narrow": (RNG.randn(30, 4, 2), np.full((30, 4, 2), 1e-3)),
    "of many widths": (RNG.randn(30, 4, 2), np.exp(2 * RNG.randn(30, 4, 2))),
    "in two heaps": (np.sign(RNG.randn(30, 4, 2)) * 10, np.full((30, 4, 2), 0.1)),
    "of one": (RNG.randn(1, 4, 2), np.full((1, 4, 2), 0.1)),
    "far from zero": (1e6 + RNG.randn(30, 4, 2), np.full((30, 4, 2), 0.5)),
}


@pytest.mark.parametrize("level", [1e-9, 0.013, 0.31, 0.5003, 0.987, 1 - 1e-9])
@pytest.mark.parametrize("name", MIXTURES)
def test_quantile_of_a_mixture_is_the_root_of_its_distribution_function(name, level):
    mean, sd = MIXTURES[name]
    found = mixture_quantile(mean, sd, level)
    for place in np.ndindex(found.shape):
        m, s = mean[:, *place], sd[:, *place]
        missing = lambda x: ndtr((x - m) / s).mean() - level if level < 0.5 else 1 - level - ndtr((m - x) / s).mean()  # noqa: B023, E731
        expected = brentq(missing, (m - 10 * s).min(), (m + 10 * s).max(), xtol=1e-12, rtol=1e-14)
        assert abs(found[place] - expected) < 1e-6 * s.min() + 1e-15 * abs(expected)


@pytest.mark.parametrize("level", [0.1, 0.3, 0.5, 0.9])
def test_quantile_between_narrow_components_does_not_hang_on_rounding(level):
    mean = np.linspace(-1, 1, 20)[:, None, None]  # F is flat at every twentieth, over a hundred standard deviations
    sd = np.full_like(mean, 1e-3)
    np.testing.assert_allclose(mixture_quantile(mean * (1 + 1e-15), sd, level), mixture_quantile(mean, sd, level), atol=1e-7)


@pytest.mark.parametrize("far", [1.0, 1e20, 1e200])
def test_quantiles_rise_with_their_level_wherever_the_row_is(regressor, far):
    """Far away the components are narrower than the last digit of their means, and many levels lie within one of them."""
    levels = RNG.permutation(np.linspace(0.001, 0.999, 99))
    values = regressor.predict_quantiles(far * X, levels)
    assert (np.diff(values[np.argsort(levels)], axis=0) >= 0).all()


def test_interval_is_made_of_quantiles(regressor):
    lower, upper = regressor.predict_interval(X, 0.8)
    np.testing.assert_array_equal(np.stack([lower, upper]), regressor.predict_quantiles(X, [0.5 - 0.4, 0.5 + 0.4]))


def test_log_density_is_that_of_the_mixture():
    model = BayesianMLPRegressor(noise=0.5, **FAST).fit(X, Y)
    expected = np.log(norm(model.sample_posterior(X), 0.5).pdf(Y).mean(0))
    np.testing.assert_allclose(model.log_predictive_density(X, Y), expected, atol=1e-9)


def test_log_density_integrates_to_one(regressor):
    grid = np.linspace(-60, 60, 1001)
    density = np.exp(regressor.log_predictive_density(np.repeat(X[:1], len(grid), axis=0), grid))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=2e-2)


def test_samples_have_the_predictive_moments(regressor):
    samples = regressor.sample_y(X, 20_000, random_state=0)
    mean, std = regressor.predict(X, return_std=True)
    assert samples.shape == (60, 20_000)
    assert (np.abs(samples.mean(1) - mean) < 5 * std / 20_000**0.5).all()
    squares = (samples - mean[:, None]) ** 2
    assert (np.abs(squares.mean(1) - std**2) < 5 * squares.std(1) / 20_000**0.5).all()


def test_several_outputs_keep_their_axis(multi):
    assert multi.predict(X).shape == (60, 2)
    assert multi.sample_posterior(X).shape == (21, 60, 2)
    assert multi.predict_quantiles(X, [0.1, 0.9]).shape == (2, 60, 2)
    assert multi.sample_y(X, 5).shape == (60, 2, 5)
    assert multi.log_predictive_density(X, YY).shape == (60,)
    assert multi.predict_uncertainty(X).total.shape == (60, 2)


def test_one_column_target_gives_one_column_predictions():
    model = BayesianMLPRegressor(**FAST).fit(X, Y[:, None])
    flat = BayesianMLPRegressor(**FAST).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), flat.predict(X)[:, None])
    assert model.predict(X, return_std=True)[1].shape == (60, 1)
    assert model.sample_posterior(X, 3).shape == (3, 60, 1)


def test_a_subset_of_draws_is_without_replacement(classifier):
    every, some = classifier.sample_posterior(X), classifier.sample_posterior(X, 10, random_state=3)
    found = [next(i for i, draw in enumerate(every) if np.array_equal(draw, wanted)) for wanted in some]
    assert len(set(found)) == 10


def test_predictions_do_not_depend_on_chunks(monkeypatch, classifier):
    from sklearn_sgmcmc import predictive

    before = classifier.predict_proba(X, return_std=True)
    monkeypatch.setattr(predictive, "CHUNK_ELEMENTS", 2000)
    monkeypatch.setattr(predictive, "ROWS", 13)
    for left, right in zip(before, classifier.predict_proba(X, return_std=True), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-10)


def test_quantiles_do_not_depend_on_chunks(monkeypatch, multi):
    from sklearn_sgmcmc import predictive

    before = multi.predict_quantiles(X, [0.1, 0.9]), multi.log_predictive_density(X, YY), multi.sample_posterior(X)
    monkeypatch.setattr(predictive, "CHUNK_ELEMENTS", 500)
    after = multi.predict_quantiles(X, [0.1, 0.9]), multi.log_predictive_density(X, YY), multi.sample_posterior(X)
    for left, right in zip(before, after, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


def test_results_of_chunks_are_laid_together_along_their_axis():
    sizes = []

    def predict(rows):
        sizes.append(rows.stop - rows.start)
        return (np.broadcast_to(np.arange(rows.start, rows.stop), (3, sizes[-1])),)

    (whole,) = over_rows(2500, predict, axis=1, per_row=1000)
    np.testing.assert_array_equal(whole, np.broadcast_to(np.arange(2500), (3, 2500)))
    assert max(sizes) == 2**19 // 1000


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_of_predictions_follows_x(classifier, multi, dtype):
    Z = X.astype(dtype)
    for value in (*classifier.predict_proba(Z, return_std=True), classifier.sample_posterior(Z), classifier.predict_log_proba(Z)):
        assert value.dtype == dtype
    for value in (*multi.predict(Z, return_std=True), multi.sample_posterior(Z), multi.predict_noise(Z), multi.sample_y(Z)):
        assert value.dtype == dtype


def test_optimisers_keep_the_last_state_of_each_chain():
    model = BayesianMLPClassifier(**(FAST | {"sampler": "adam"})).fit(X, LABEL)
    assert model.draws_.shape[:2] == (1, 3)
    assert model.effective_temperature_ is None


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, 1.0),
        ({"sampler": "msgld"}, 0.5),
        ({"sampler": "sgld"}, 1.0),
        ({"sampler": "msgld", "bias_factor": 3, "temperature": 0.8}, 0.2),
    ],
)
def test_effective_temperature(params, expected):
    assert BayesianMLPClassifier(**(FAST | params)).fit(X, LABEL).effective_temperature_ == pytest.approx(expected)


def test_counts_of_epochs_and_steps():
    full = BayesianMLPClassifier(**FAST).fit(X, LABEL)
    mini = BayesianMLPClassifier(batch_size=25, **FAST).fit(X, LABEL)
    assert (full.n_iter_, full.n_steps_) == (60, 60)
    assert (mini.n_iter_, mini.n_steps_) == (60, 144)


def test_predicting_in_inference_mode_does_not_disturb_a_later_fit():
    rng = np.random.RandomState(0)
    X = rng.randn(30, 3).astype(np.float32)
    model = BayesianMLPRegressor((4,), noise=0.5173, max_iter=20, random_state=0).fit(X, X[:, 0])
    with torch.inference_mode():
        model.predict(X, return_std=True)
    model.set_params(sampler="nr_sgld_hessian").fit(X, X[:, 0])
