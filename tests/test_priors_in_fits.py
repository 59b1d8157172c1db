"""Priors in the estimators: names, fields, masks, the switch, errors and warnings."""

import pickle
import re
import warnings
from functools import cache

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from test_priors import slab_share

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.estimators import _base
from sklearn_sgmcmc.likelihoods import HeteroscedasticNoise, HomoscedasticNoise
from sklearn_sgmcmc.priors import PRIORS, Laplace, Normal, PriorSwitch, SpikeSlab, StudentT

RNG = np.random.RandomState(0)
X = RNG.randn(60, 3)
Y = X[:, 0] + 0.1 * RNG.randn(60)
LABEL = (Y > 0).astype(int)
FAST = {"hidden_layer_sizes": (4,), "activation": "tanh", "max_iter": 40, "n_draws": 5, "random_state": 0}
ESTIMATORS = {BayesianMLPClassifier: LABEL, BayesianMLPRegressor: Y}
both = pytest.mark.parametrize(("estimator", "y"), ESTIMATORS.items(), ids=lambda value: getattr(value, "__name__", ""))


@cache
def weighted_fit(estimator, prior, dtype):
    return estimator(prior=prior, dtype=dtype, **FAST).fit(X, ESTIMATORS[estimator], sample_weight=1.0 + np.arange(60) % 2)


@both
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("prior", PRIORS)
def test_every_prior_fits_by_name(estimator, y, dtype, prior):
    model, normal = (weighted_fit(estimator, name, dtype) for name in (prior, "normal"))
    assert (model.draws_ != normal.draws_).any() == (prior not in ("normal", "fan_in_normal"))  # no layer is wide
    assert np.isfinite(model.predict(X)).all()


@both
def test_pruned_predictions_are_those_of_the_masked_weights(estimator, y):
    of_regressor = {"normalize_y": False, "noise": "homoscedastic"}
    settings = FAST | {"standardize": False} | (of_regressor if estimator is BayesianMLPRegressor else {})
    model = estimator(prior=SpikeSlab(1.0, 0.2), **settings).fit(X, y)
    theta = (model.draws_ * model.keep_mask_).reshape(20, -1).astype(np.float64)
    assert 0 < model.sparsity_ < 1
    n_outputs = 2 if estimator is BayesianMLPClassifier else 1
    first, last = theta[:, :16].reshape(20, 4, 4), theta[:, 16 : 16 + 5 * n_outputs].reshape(20, n_outputs, 5)
    hidden = np.tanh(X @ first[:, :3] + first[:, 3:])
    outputs = hidden @ last[:, :, :4].transpose(0, 2, 1) + last[:, None, :, 4]
    expected = softmax(outputs, axis=2) if estimator is BayesianMLPClassifier else outputs[..., 0]
    np.testing.assert_allclose(model.sample_posterior(X), expected, rtol=1e-9, atol=1e-12)


@both
def test_without_pruning_draws_are_the_same_and_predictions_use_all_weights(estimator, y):
    pruned, whole = (estimator(prior=SpikeSlab(1.0, 0.2, prune=prune), **FAST).fit(X, y) for prune in (True, False))
    np.testing.assert_array_equal(pruned.draws_, whole.draws_)
    np.testing.assert_array_equal(pruned.keep_mask_, whole.keep_mask_)
    assert (pruned.sample_posterior(X) != whole.sample_posterior(X)).any()
    whole.draws_ = whole.draws_ * whole.keep_mask_
    np.testing.assert_array_equal(pruned.sample_posterior(X), whole.sample_posterior(X))


@both
def test_mask_keeps_biases_and_noise_levels_and_sparsity_counts_connection_weights_alone(estimator, y):
    settings = FAST | ({"noise": "homoscedastic"} if estimator is BayesianMLPRegressor else {})
    model = estimator(prior=SpikeSlab(1.0, 0.2), **settings).fit(X, y)
    n_outputs = 2 if estimator is BayesianMLPClassifier else 1
    is_weight = np.zeros(model.draws_.shape[2], dtype=bool)
    is_weight[:12] = True  # (3 + 1, 4), biases last
    is_weight[16 : 16 + 5 * n_outputs] = np.arange(5 * n_outputs) % 5 < 4  # (n_outputs, 4 + 1), biases last
    mask = model.keep_mask_
    assert mask.shape == model.draws_.shape
    assert mask.dtype == bool
    assert mask[..., ~is_weight].all()
    assert model.sparsity_ == mask[..., is_weight].mean()
    weights = model.draws_[..., is_weight].astype(np.float64)
    np.testing.assert_array_equal(mask[..., is_weight], slab_share(weights, 1.0, 0.2, 0.5) >= 0.5)


def test_layers_have_their_own_thresholds_in_the_mask():
    model = BayesianMLPRegressor(prior=SpikeSlab(1.0, (0.9999, 0.1), (0.9, 0.5)), **FAST).fit(X, Y)
    assert model.keep_mask_[..., :12].all()  # layer 0 has the threshold 0
    assert not model.keep_mask_[..., 16:20].all()


def test_only_a_prior_with_a_spike_gives_mask_and_sparsity():
    model = BayesianMLPRegressor(prior="spike_slab", **FAST)
    assert not hasattr(model, "keep_mask_")
    assert not hasattr(model, "sparsity_")
    model.fit(X, Y)
    assert hasattr(model, "keep_mask_")
    assert hasattr(model, "sparsity_")
    model.set_params(prior="laplace").fit(X, Y)
    assert not hasattr(model, "keep_mask_")
    with pytest.raises(
        AttributeError, match=r"sparsity_ is there only after a fit with a prior that has a spike: use prior='spike"
    ):
        _ = model.sparsity_


@both
def test_pickle_holds_the_draws_once_and_no_tensors(estimator, y):
    model = estimator(prior="prior_switch", **(FAST | {"hidden_layer_sizes": (500,), "n_draws": 20})).fit(X, y)
    data = pickle.dumps(model)
    of_last_state = sum(part.nbytes for part in model._last.state)
    assert len(data) <= model.draws_.nbytes * 1.05 + of_last_state + 50_000
    assert b"torch" not in data
    np.testing.assert_array_equal(pickle.loads(data).keep_mask_, model.keep_mask_)


@both
def test_fields_of_a_prior_can_be_searched(estimator, y):
    grid = {"prior__scale": [0.5, 2.0], "prior__spike_scale": [0.1, 0.3]}
    search = GridSearchCV(estimator(prior=SpikeSlab(), **FAST), grid, cv=2, error_score="raise").fit(X, y)
    fits = [estimator(prior=SpikeSlab(), **FAST).set_params(**params).fit(X, y) for params in search.cv_results_["params"]]
    assert len({model.draws_.tobytes() for model in fits}) == 4
    np.testing.assert_array_equal(search.best_estimator_.draws_, fits[search.best_index_].draws_)


def test_fields_of_a_switch_can_be_reached_cloned_and_printed():
    model = BayesianMLPRegressor(prior=PriorSwitch(), **FAST)
    copy = clone(model).set_params(prior__after__spike_scale=0.01, prior__before__scale=(1.0, 2.0), prior__at=0.2)
    assert model.get_params()["prior__after__spike_scale"] == 0.05
    assert copy.get_params()["prior__after__spike_scale"] == 0.01
    assert "PriorSwitch(before=Normal(scale=(1.0, 2.0), fan_in=False), after=SpikeSlab(scale=1.0, spike_scale=0.01" in repr(
        copy.prior
    )
    assert "prior=PriorSwitch(" in repr(copy)


# --- the switch ----------------------------------------------------------------------------------------------------------------


def stages_of(monkeypatch, model):
    """Return the stages that a fit runs."""
    jobs = []
    original = _base.sample_chains
    monkeypatch.setattr(_base, "sample_chains", lambda job, n_jobs: jobs.append(job) or original(job, n_jobs))
    model.fit(X, ESTIMATORS[type(model)])
    return jobs[0].stages


def test_the_prior_changes_after_its_share_of_the_steps(monkeypatch):
    prior = PriorSwitch(Normal(2.0), Laplace(), at=0.3)
    stages = stages_of(monkeypatch, BayesianMLPClassifier(prior=prior, warm_up=0, **FAST))
    assert [len(stage.timeline) for stage in stages] == [12, 28]
    assert [type(stage.posterior.prior) for stage in stages] == [Normal, Laplace]


@pytest.mark.parametrize("at", [0.1, 0.275, 0.4])
def test_the_switch_goes_with_the_warm_up_of_a_heteroscedastic_head(monkeypatch, at):
    """The warm-up takes 11 steps, half of those before the first kept draw: the prior changes before, with or after its end."""
    model = BayesianMLPRegressor(prior=PriorSwitch(Normal(), Laplace(), at), noise="heteroscedastic", warm_up=0, **FAST)
    stages = stages_of(monkeypatch, model)
    ends = np.cumsum([len(stage.timeline) for stage in stages]).tolist()
    warm_up, switch = 11, int(at * 40)
    assert ends == [*sorted({warm_up, switch}), 40]
    for start, stage in zip([0, *ends], stages, strict=False):
        assert isinstance(stage.posterior.prior, Laplace if start >= switch else Normal)
        assert isinstance(stage.posterior.likelihood, HeteroscedasticNoise if start >= warm_up else HomoscedasticNoise)
    assert np.isfinite(model.predict(X)).all()


@both
def test_a_switch_between_equal_priors_changes_no_bit_of_a_sampler_without_momenta(estimator, y):
    settings = FAST | {"sampler": "sgld", "learning_rate": 0.05}
    switched = estimator(prior=PriorSwitch(Laplace(0.5), Laplace(0.5)), **settings).fit(X, y)
    np.testing.assert_array_equal(switched.draws_, estimator(prior=Laplace(0.5), **settings).fit(X, y).draws_)


@both
@pytest.mark.parametrize("sampler", ["sghmc", "sgnht"])
def test_a_switch_at_the_start_is_the_second_prior_alone_bit_for_bit(estimator, y, sampler):
    switched = estimator(prior=PriorSwitch(Normal(3.0), SpikeSlab(), at=0.0), sampler=sampler, **FAST).fit(X, y)
    alone = estimator(prior=SpikeSlab(), sampler=sampler, **FAST).fit(X, y)
    np.testing.assert_array_equal(switched.draws_, alone.draws_)


@both
@pytest.mark.parametrize("sampler", ["sgd", "mala", "psgld"])
def test_a_switch_works_with_every_kind_of_sampler(estimator, y, sampler):
    assert 0 <= estimator(prior="prior_switch", sampler=sampler, **FAST).fit(X, y).sparsity_ <= 1


# --- errors and warnings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (Normal(0.0), r"Normal.scale=0.0 must be a number between 1e-6 and 1e6, or one such number per layer; 1.0 is the default"),
        (Normal((1.0, -1.0)), r"Normal.scale=\(1.0, -1.0\) must be"),
        (Normal("wide"), "Normal.scale='wide' must be"),
        (Normal(((1.0, 2.0),)), r"Normal.scale=\(\(1.0, 2.0\),\) must be"),
        (Normal(None), "Normal.scale=None must be"),
        (Normal((1.0, 2.0, 3.0)), r"Normal.scale=\(1.0, 2.0, 3.0\) has 3 values, and the network has 2 layers.*= 2 values"),
        (Normal(fan_in="yes"), "Normal.fan_in='yes' must be True, False or a number >= 1"),
        (Normal(fan_in=0.5), "Normal.fan_in=0.5 must be True, False or a number >= 1"),
        (Laplace(float("nan")), "Laplace.scale=nan must be"),
        (StudentT(df=0.0), r"StudentT.df=0.0 must be a number in \[0.1, 1e6\]"),
        (SpikeSlab(spike_scale=(0.1,)), r"SpikeSlab.spike_scale=\(0.1,\) has 1 values"),
        (SpikeSlab(slab_probability=1.0), "SpikeSlab.slab_probability=1.0 must be a number strictly between 0 and 1"),
        (SpikeSlab((1.0, 0.1), 0.2), r"SpikeSlab.spike_scale=0.2 must be less than scale=\(1.0, 0.1\) in every layer"),
        (SpikeSlab(prune=1), "SpikeSlab.prune=1 must be True or False"),
        (SpikeSlab(torch.ones(4, 1)), "prior.scale is a tensor"),
        (PriorSwitch(at=1.0), r"PriorSwitch.at=1.0 must be a share of the steps in \[0, 1\); 0.4 is the default"),
        (PriorSwitch(before="normal"), "PriorSwitch.before='normal' must be a prior that does not itself change: give an object"),
        (PriorSwitch(after=PriorSwitch()), "PriorSwitch.after=PriorSwitch"),
        (PriorSwitch(after=Laplace(-1.0)), "Laplace.scale=-1.0 must be"),
        (PriorSwitch(Normal(torch.ones(4, 1))), "prior.before.scale is a tensor"),
        (
            PriorSwitch(at=0.9),
            r"prior.at=0.9 changes the prior after step 36 of 40.*kept after step \d+.*Use at<=0.\d+ or a larger",
        ),
    ],
    ids=lambda value: value.split("=")[0].split(" ")[0].replace("\\", "") if isinstance(value, str) else type(value).__name__,
)
@both
def test_bad_priors_are_named_with_value_rule_and_fix(estimator, y, prior, message):
    with pytest.raises(ValueError, match=message):
        estimator(prior=prior, **FAST).fit(X, y)


def test_the_share_named_for_a_late_switch_is_early_enough():
    model = BayesianMLPRegressor(prior=PriorSwitch(at=0.9), **FAST)
    with pytest.raises(ValueError, match="Use at<=") as error:
        model.fit(X, Y)
    model.set_params(prior__at=float(re.search(r"at<=([\d.]+)", str(error.value)).group(1))).fit(X, Y)


@pytest.mark.parametrize("prior", ["prior_switch", PriorSwitch()])
def test_prior_scale_does_not_say_which_part_of_a_switch_it_means(prior):
    with pytest.raises(ValueError, match=r"prior_scale=0.5 and prior=.*before=Normal.* and after=SpikeSlab.*prior__before__scale"):
        BayesianMLPClassifier(prior=prior, prior_scale=0.5, **FAST).fit(X, LABEL)


@both
@pytest.mark.parametrize("name", ["laplace", "student_t", "spike_slab"])
def test_prior_scale_is_the_scale_of_a_named_prior(estimator, y, name):
    by_name = estimator(prior=name, prior_scale=0.5, **FAST).fit(X, y)
    np.testing.assert_array_equal(by_name.draws_, estimator(prior=PRIORS[name](scale=0.5), **FAST).fit(X, y).draws_)


@both
@pytest.mark.parametrize("sampler", ["sgld", "sghmc", "sgd"])
@pytest.mark.parametrize("schedule", ["constant", "cyclical"])
def test_steps_too_long_for_the_spike_warn_with_numbers_that_are_admissible(estimator, y, sampler, schedule):
    settings = FAST | {"sampler": sampler, "schedule": schedule, "learning_rate": 0.05}
    settings |= {"noise": 0.5} if estimator is BayesianMLPRegressor else {}
    model = estimator(prior=PriorSwitch(after=SpikeSlab(spike_scale=0.01)), **settings)
    with pytest.warns(ConvergenceWarning, match=r"learning_rate=0.05 is too large for the prior's spike of scale 0.01") as record:
        model.fit(X, y)
    text = next(str(warning.message) for warning in record if "spike" in str(warning.message))
    rate, width = (float(re.search(rf"{name}([\d.e-]+\d)", text).group(1)) for name in ("learning_rate<=", "spike_scale>="))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*spike")
        clone(model).set_params(learning_rate=rate).fit(X, y)
        clone(model).set_params(prior__after__spike_scale=width).fit(X, y)
    for change in ({"learning_rate": 1.1 * rate}, {"prior__after__spike_scale": width / 1.1}):
        with pytest.warns(ConvergenceWarning, match="spike"):
            clone(model).set_params(**change).fit(X, y)


@both
@pytest.mark.filterwarnings("error:.*spike")
def test_default_learning_rates_are_short_enough_for_the_spike(estimator, y):
    model = estimator(prior=SpikeSlab(spike_scale=1e-3), temperature=1.0, **FAST).fit(X, y)
    assert np.max(model.learning_rate_) <= 60 * 1e-6 / 2  # N s0^2 / (2 tau)


def test_a_chain_that_keeps_all_weights_in_the_slab_has_not_diverged():
    """Each costs log[(1 - lambda) s1 / (lambda s0)] = 28 nats more than at 0, beyond the 10 that a hot chain is allowed."""
    prior = PriorSwitch(after=SpikeSlab(spike_scale=1e-5, slab_probability=1e-7))
    model = BayesianMLPClassifier(prior=prior, **(FAST | {"hidden_layer_sizes": (50,)})).fit(X, LABEL)
    assert model.sparsity_ > 0.9


@pytest.mark.parametrize("prior", [Laplace(0.01), Laplace(1e-3), StudentT(1e-3)], ids=repr)
@pytest.mark.parametrize("sampler", ["sgld", "sghmc"])
def test_default_steps_resolve_the_peak_of_a_narrow_prior(prior, sampler):
    """Weights of constant columns keep their prior: E |w| / scale is 1 for Laplace, 1 for Student t with 4 degrees of freedom."""
    rng = np.random.RandomState(0)
    X = np.column_stack([rng.randn(200, 1), np.ones((200, 8))])
    settings = {"n_chains": 32, "max_iter": 2000, "n_draws": 50, "random_state": 0}
    model = BayesianMLPClassifier((), prior=prior, sampler=sampler, **settings).fit(X, X[:, 0] > 0)
    weights = model.draws_.reshape(-1, 2, 10)[:, :, 1:9]
    assert np.abs(weights).mean() / prior.scale == pytest.approx(1.0, rel=0.12)  # the step's bias of 1/16, and Monte Carlo
