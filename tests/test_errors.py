"""Every error names the parameter, its value, the rule and the fix."""

import contextlib
import re
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc._checks import clear_of, rounded_down
from sklearn_sgmcmc.priors import Normal, Prior, PriorSwitch, SpikeSlab, StudentT
from sklearn_sgmcmc.samplers import ASGLD, MCLMC, MSGLD, SGHMC, SGLD, SGNHT, Sampler, Santa
from sklearn_sgmcmc.schedules import Annealed, Cyclical, Polynomial

RNG = np.random.RandomState(0)
X = RNG.randn(40, 3)
LABEL = (X[:, 0] > 0).astype(int)
both = pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
FAST = {"hidden_layer_sizes": (4,), "max_iter": 20, "n_draws": 4, "random_state": 0}


@cache
def fitted(estimator, **settings):
    """Return a model to be asked what it refuses."""
    return estimator(**FAST | settings).fit(X, LABEL)


BAD = [
    ("sampler", "hmc"),
    ("sampler", 3),
    ("activation", "selu"),
    ("activation", None),
    ("schedule", "linear"),
    ("prior", "uniform"),
    ("prior", None),
    ("prior", Normal),
    ("hidden_layer_sizes", (0,)),
    ("hidden_layer_sizes", (-3, 4)),
    ("hidden_layer_sizes", (2.5,)),
    ("hidden_layer_sizes", None),
    ("max_iter", 0),
    ("max_iter", 1.5),
    ("n_draws", 0),
    ("n_chains", 0),
    ("n_chains", True),
    ("batch_size", 0),
    ("batch_size", "all"),
    ("burn_in", 1.0),
    ("burn_in", -0.1),
    ("temperature", -1.0),
    ("temperature", float("nan")),
    ("temperature", 1e300),
    ("learning_rate", 0.0),
    ("learning_rate", -0.1),
    ("learning_rate", float("inf")),
    ("learning_rate", 1e300),
    ("learning_rate", "fast"),
    ("bias_factor", -1.0),
    ("prior_scale", 0.0),
    ("dtype", "float16"),
    ("device", "gpu0"),
    ("standardize", "yes"),
    ("verbose", -1),
]


@both
@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_parameter_is_named_with_its_value(estimator, name, value):
    with pytest.raises(ValueError, match=f"^{name}={re.escape(repr(value))}") as error:
        estimator(**(FAST | {name: value})).fit(X, LABEL)
    assert re.search("; .+|choose one of|cannot be used here", str(error.value))  # the fix


@both
@pytest.mark.parametrize("name", ["sampler__friction", "prior__scale", "schedule__power", "n_draws__low"])
def test_a_name_has_no_fields_to_set(estimator, name):
    with pytest.raises(ValueError, match=rf"{name}=0.1 is a field of an object, and .* is none: pass an object first"):
        estimator().set_params(**{name: 0.1})
    assert estimator().set_params(sampler=SGHMC(), sampler__friction=0.1).sampler.friction == 0.1


@pytest.mark.parametrize("value", ["poisson", 0.0, -1.0, None])
def test_bad_noise_is_named_with_its_value(value):
    with pytest.raises(ValueError, match=f"noise={re.escape(repr(value))}"):
        BayesianMLPRegressor(noise=value, **FAST).fit(X, LABEL)


@both
@pytest.mark.parametrize("sampler", ["sgld", "msgld", "sghmc", "sgd", "adam"])
@pytest.mark.parametrize("batch_size", ["auto", 10])
def test_far_too_large_learning_rate_is_named_with_a_smaller_one_to_try(estimator, sampler, batch_size):
    model = estimator(sampler=sampler, batch_size=batch_size, learning_rate=1e3, **(FAST | {"max_iter": 50}))
    with pytest.raises(ValueError, match=r"^learning_rate=1000.0 diverged.*4 of 4 chains.*try learning_rate<=") as error:
        model.fit(X, LABEL)
    better = float(re.search(r"<=([\d.e-]+\d)", str(error.value)).group(1))
    model.set_params(learning_rate=better).fit(X, LABEL)


def test_data_that_are_not_scaled_are_named_where_chains_diverge():
    with pytest.raises(ValueError, match=r"diverged.*With standardize=False and normalize_y=False the data must be of order 1"):
        BayesianMLPRegressor(standardize=False, normalize_y=False, **FAST).fit(1e20 * X, 1e20 * LABEL)


@pytest.mark.parametrize("value", [-1, 2**32, "seed", np.random.default_rng(0)])
def test_what_is_no_random_state_is_refused(value):
    model = fitted(BayesianMLPRegressor)
    calls = (
        lambda: clone(model).set_params(random_state=value).fit(X, LABEL),
        lambda: clone(model).set_params(sampler="sgld", random_state=value).partial_fit(X, LABEL),
        lambda: model.sample_y(X, random_state=value),
        lambda: model.sample_posterior(X, n_draws=1, random_state=value),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"random_state=.* must be None, an integer from 0 to"):
            call()


@pytest.mark.parametrize("name", ["keep_mask_", "sparsity_"])
def test_what_only_a_spike_leaves_is_said_before_any_fit(name):
    with pytest.raises(AttributeError, match=f"{name} is there only after a fit with a prior that has a spike"):
        getattr(BayesianMLPRegressor(), name)


def test_chains_that_diverge_are_dropped_with_a_warning(monkeypatch):
    from sklearn_sgmcmc import noise

    original = noise.BlockNoise.__call__

    def poisoned(self, like):
        out = original(self, like)
        out[1] = out[1] * 1e30  # chain 1 is thrown away at its first step
        return out

    monkeypatch.setattr(noise.BlockNoise, "__call__", poisoned)
    with pytest.warns(ConvergenceWarning, match=r"1 of 4 chains.*dropped"):
        model = BayesianMLPClassifier(**FAST).fit(X, LABEL)
    assert model.draws_.shape[1] == 3
    assert np.isfinite(model.predict_proba(X)).all()


@both
def test_fewer_steps_than_draws_warn_with_both_numbers(estimator):
    with pytest.warns(ConvergenceWarning, match=r"n_draws=50 .* 5 kept"):
        model = estimator((4,), max_iter=10, random_state=0).fit(X, LABEL)
    assert model.draws_.shape[0] == 5


@both
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.full(40, -1.0), "sample_weight has the value -1.0"),
        (np.zeros(40), "sample_weight is zero for every row"),
        (np.full(40, np.nan), "sample_weight contains NaN"),
        (np.ones((40, 2)), "sample_weight"),
        (np.ones(39), "inconsistent numbers"),
    ],
)
def test_bad_weights_are_refused(estimator, weight, message):
    with pytest.raises(ValueError, match=message):
        estimator(**FAST).fit(X, LABEL, sample_weight=weight)


@both
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_inf_inputs_are_refused(estimator, value):
    bad = X.copy()
    bad[3, 1] = value
    with pytest.raises(ValueError, match="X contains"):
        estimator(**FAST).fit(bad, LABEL)
    with pytest.raises(ValueError, match="X contains"):
        fitted(estimator).predict(bad)


METHODS = {
    BayesianMLPClassifier: ["predict", "predict_proba", "predict_log_proba", "predict_uncertainty", "sample_posterior"],
    BayesianMLPRegressor: ["predict", "predict_noise", "predict_uncertainty", "predict_interval", "sample_posterior", "sample_y"],
}


@pytest.mark.parametrize(("estimator", "method"), [(e, m) for e, methods in METHODS.items() for m in methods])
@pytest.mark.parametrize("noise", ["homoscedastic", "heteroscedastic"])
def test_inputs_out_of_range_at_prediction_are_an_error_not_a_nan(estimator, method, noise):
    model = fitted(estimator, hidden_layer_sizes=(4, 4), **({"noise": noise} if estimator is BayesianMLPRegressor else {}))
    for far in (1e155, 1e300, 1e308):
        with contextlib.suppress(ValueError):
            out = getattr(model, method)(np.full((1, 3), far))
            for part in out.values() if isinstance(out, dict) else out if isinstance(out, tuple) else [out]:
                assert np.isfinite(part).all()


@both
def test_far_inputs_are_named_in_the_error(estimator):
    with pytest.raises(ValueError, match="far from the training rows"):
        estimator((4, 4), sampler="sghmc", warm_up=0, max_iter=20, n_draws=4, random_state=0).fit(X, LABEL).predict(
            np.full((1, 3), 1e308)
        )


def test_targets_that_overflow_are_named():
    with pytest.raises(ValueError, match=r"y has values that overflow float32.*normalize_y"):
        BayesianMLPRegressor(normalize_y=False, **FAST).fit(X, LABEL * 1e39)


@both
def test_weights_that_overflow_are_named(estimator):
    with pytest.raises(ValueError, match=r"sample_weight .* reaches from 1 to 1e\+39"):
        estimator(**FAST).fit(X, LABEL, sample_weight=np.where(LABEL, 1e39, 1.0))


@pytest.mark.parametrize("y", [LABEL[:-1], np.stack([LABEL, LABEL], 1), np.tile(LABEL, 2)])
def test_log_density_of_targets_of_the_wrong_shape(y):
    with pytest.raises(ValueError, match=r"inconsistent numbers|y has 2 columns"):
        fitted(BayesianMLPRegressor).log_predictive_density(X, y)


def test_one_value_per_chain_is_not_for_estimators():
    with pytest.raises(ValueError, match=r"sampler.bias_factor is a tensor"):
        BayesianMLPClassifier(sampler=MSGLD(torch.ones(4, 1)), **FAST).fit(X, LABEL)


@both
def test_unscaled_inputs_that_overflow_name_the_fix(estimator):
    with pytest.raises(ValueError, match="standardize"):
        estimator(standardize=False, **FAST).fit(X * 1e200, LABEL)


@both
def test_unfitted_estimator_says_so(estimator):
    further = {"predict_quantiles": ([0.5],), "log_predictive_density": (LABEL,), "score": (LABEL,)}
    without_rows = ("diagnostics", "summary", "to_arviz")
    methods = [name for name in dir(estimator) if name.startswith(("predict", "sample_", "log_predictive")) or name == "score"]
    for method in methods:
        with pytest.raises(NotFittedError):
            getattr(estimator(), method)(X, *further.get(method, ()))
    for method in without_rows:
        with pytest.raises(NotFittedError):
            getattr(estimator(), method)()


@both
def test_return_std_is_true_or_false(estimator):
    model = fitted(estimator)
    predict = model.predict_proba if estimator is BayesianMLPClassifier else model.predict
    with pytest.raises(ValueError, match="return_std='yes' must be True or False"):
        predict(X, return_std="yes")


@pytest.mark.parametrize("n_samples", [0, -1, 1.5, None, True])
def test_bad_n_samples_is_refused(n_samples):
    with pytest.raises(ValueError, match="n_samples="):
        fitted(BayesianMLPRegressor).sample_y(X, n_samples)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (LABEL[:5], "inconsistent numbers of samples"),
        (np.column_stack([LABEL, LABEL]), "y has 2 columns, and the model was fitted on 1"),
        (np.full(40, np.nan), "y contains NaN"),
        (np.full(40, 1e300), r"y=\[1e\+300\] at row 0 is so far from its prediction"),
    ],
)
def test_targets_that_do_not_fit_have_no_log_density(y, message):
    with pytest.raises(ValueError, match=message):
        fitted(BayesianMLPRegressor).log_predictive_density(X, y)


@both
@pytest.mark.parametrize("n_draws", [0, -1, 1.5, True])
def test_bad_numbers_of_draws_are_refused(estimator, n_draws):
    with pytest.raises(ValueError, match="n_draws="):
        fitted(estimator).sample_posterior(X, n_draws=n_draws)


@both
def test_more_draws_than_stored_are_refused(estimator):
    with pytest.raises(ValueError, match=r"n_draws=17 exceeds the 16 stored draws"):
        fitted(estimator).sample_posterior(X, n_draws=17)


def test_bias_factor_for_a_sampler_without_one():
    with pytest.raises(ValueError, match=r"bias_factor=1.0 needs a sampler with a bias term.*'sghmc'.*'msgld'"):
        BayesianMLPClassifier(sampler="sghmc", bias_factor=1, **FAST).fit(X, LABEL)


@pytest.mark.parametrize("sampler", ["sgld", "sghmc", "msgld", "sgd", "adam", SGLD(), MSGLD(bias_factor=0)])
@pytest.mark.parametrize("bias_factor", [0, None])
def test_no_bias_is_accepted_by_every_sampler(sampler, bias_factor):
    BayesianMLPClassifier(sampler=sampler, bias_factor=bias_factor, **FAST).fit(X, LABEL)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"sampler": MSGLD(bias_factor=2.0), "bias_factor": 3.0}, "bias_factor=3.0 and sampler.bias_factor=2.0"),
        ({"prior": Normal(scale=2.0), "prior_scale": 3.0}, "prior_scale=3.0 and prior.scale=2.0"),
        ({"prior": Normal(scale=(2.0, 3.0)), "prior_scale": 3.0}, r"prior_scale=3.0 and prior.scale=\(2.0, 3.0\) differ"),
        ({"prior": SpikeSlab(scale=2.0), "prior_scale": 3.0}, "prior_scale=3.0 and prior.scale=2.0"),
        ({"sampler": "sgd", "temperature": 1.0}, "temperature=1.0 means nothing to SGD"),
        ({"sampler": SGHMC(friction=2.0)}, "SGHMC.friction=2.0 must be"),
        ({"prior": StudentT(df=-1.0)}, "StudentT.df=-1.0 must be"),
        ({"schedule": Cyclical(n_cycles=0)}, "Cyclical.n_cycles=0"),
    ],
)
def test_one_quantity_has_one_owner(params, message):
    with pytest.raises(ValueError, match=message):
        BayesianMLPClassifier(**(FAST | params)).fit(X, LABEL)


def test_fit_never_writes_into_a_parameter():
    sampler = MSGLD(bias_factor=0.5)
    model = BayesianMLPClassifier(sampler=sampler, prior=(prior := PriorSwitch()), **FAST).fit(X, LABEL)
    assert model.sampler is sampler
    assert model.prior is prior
    assert prior.get_params()["after"].get_params() == SpikeSlab().get_params()
    assert sampler.get_params() == {"bias_factor": 0.5, "smoothing": 0.9, "variant": "printed"}


@pytest.mark.parametrize("quantiles", [1.5, [0.0], [0.5, 1.0], [-0.1], [np.nan]])
def test_bad_quantiles_are_refused(quantiles):
    with pytest.raises(ValueError, match="quantiles="):
        fitted(BayesianMLPRegressor).predict_quantiles(X, quantiles)


@pytest.mark.parametrize("coverage", [0, 1, 1.5, -0.2, "most"])
def test_bad_coverage_is_refused(coverage):
    with pytest.raises(ValueError, match="coverage="):
        fitted(BayesianMLPRegressor).predict_interval(X, coverage)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({0: 0.0, 1: 0.0}, "class_weight={0: 0.0, 1: 0.0} must be finite"),
        ({0: "a", 1: 1.0}, "class_weight={0: 'a', 1: 1.0} must be a dict of one weight"),
        ({"a": 1.0}, "class_weight={'a': 1.0} must be a dict of one weight"),
        ("even", "class_weight='even' must be a dict of one weight"),
        ({0: 1e-300, 1: 1.0}, r"sample_weight \(times class_weight, if there is one\) reaches from 1e-300 to 1:"),
    ],
)
def test_unsuitable_class_weights_are_refused(class_weight, message):
    with pytest.raises(ValueError, match=message):
        BayesianMLPClassifier(class_weight=class_weight, **FAST).fit(X, LABEL)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"sampler": SGNHT(noise_level=np.array(0.1))}, "SGNHT.noise_level=array"),
        ({"sampler": MSGLD(np.array([1.0, 1.0])), "bias_factor": 1.0}, "MSGLD.bias_factor=array"),
        ({"prior": Normal(np.array([1.0, 1.0])), "prior_scale": 1.0}, "Normal.scale=array"),
        ({"sampler": "sgd", "temperature": np.array([0, 1])}, "temperature=array"),
        ({"sampler": ASGLD(bias_factor=1e300)}, r"ASGLD.bias_factor=1e\+300 must be a number >= 0 and at most 1e\+18"),
        ({"sampler": MCLMC(energy_error=1e300)}, "MCLMC.energy_error=.* at most"),
        ({"sampler": SGHMC(friction=Fraction(1, 10))}, "SGHMC.friction=Fraction"),
        ({"sampler": SGHMC(friction=Decimal("0.1"))}, "SGHMC.friction=Decimal"),
        ({"schedule": Annealed(amplitude=1e-300)}, "Annealed.amplitude=1e-300 must be a number >= 1e-18"),
        ({"sampler": SGHMC(gradient_noise_variance=10**400)}, "SGHMC.gradient_noise_variance=10+ must be"),
        ({"sampler": "msgld", "bias_factor": 1e300}, "MSGLD.bias_factor=.* at most"),
        ({"sampler": Sampler()}, "sampler=.* is not known"),
        ({"prior": Prior()}, "prior=.* is not known"),
    ],
)
def test_arrays_and_base_classes_are_refused_by_name(params, message):
    with pytest.raises(ValueError, match=message):
        BayesianMLPRegressor((4,), max_iter=10, **params).fit(np.eye(4), np.arange(4.0))


def test_large_schedule_fields_and_numpy_flags_pass():
    Annealed(gamma=1e300).timeline(n_steps=30, steps_per_epoch=1.0, burn_in=0.5, n_draws=5)
    BayesianMLPRegressor((4,), max_iter=30, schedule=Polynomial(offset=1e300), verbose=np.False_).fit(np.eye(4), np.arange(4.0))
    BayesianMLPRegressor((4,), max_iter=30, sampler=Santa(metric_correction=np.False_)).fit(np.eye(4), np.arange(4.0))


@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [
        (1.234567, 1.1, "1.23"),
        (1.1003, 1.1, "1.1003"),
        (np.nextafter(1.1, 2), 1.1, "1.1000000000000003"),
        (0.39996, 0.4, "0.39996"),
        (0.4, 0.4, "0.4"),
        (12345.6, 1.1, "1.23e+04"),
        (np.inf, 1.1, "inf"),
    ],
)
def test_a_number_in_a_message_is_on_its_side_of_the_limit(value, limit, text):
    assert clear_of(value, limit) == text


@pytest.mark.parametrize(("limit", "text"), [(2 / 3, "0.666"), (0.5, "0.5"), (0.0, "0"), (1e6 / 3, "333000"), (np.inf, "inf")])
def test_a_limit_in_a_message_is_never_above_the_limit(limit, text):
    assert rounded_down(limit) == text
