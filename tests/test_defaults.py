"""Warm-up, the sampler and the learning rate that estimators choose by themselves, and data that no default may fail on."""

import warnings

import numpy as np
import pytest
import torch

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.batches import Batches, DenseRows, RowSet
from sklearn_sgmcmc.engine import Stage, run
from sklearn_sgmcmc.noise import BlockNoise, noise_generators, row_generators
from sklearn_sgmcmc.samplers import MCLMC, MSGLD, SGHMC, SGLD, Adam
from sklearn_sgmcmc.schedules import Cyclical, Timeline
from sklearn_sgmcmc.step_control import Caution, StepControl

CPU = torch.device("cpu")
FAST = {"hidden_layer_sizes": (6,), "max_iter": 60, "n_draws": 5, "random_state": 0}
RNG = np.random.RandomState(0)
X = RNG.randn(80, 3)
Y = X[:, 0] - X[:, 1] ** 2 + 0.1 * RNG.randn(80)
LABEL = (Y > 0).astype(int)
both = pytest.mark.parametrize(("estimator", "y"), [(BayesianMLPClassifier, LABEL), (BayesianMLPRegressor, Y)])


class Seen:
    """A flat potential that notes the rows it is bound to."""

    n_params, n_data = 1, 1.0

    def __init__(self):
        self.rows = []

    def bind(self, batch, following):
        self.rows.append(batch.target[..., 0])
        return self

    def value(self, theta):
        return torch.zeros(len(theta), dtype=torch.float64)

    def grad(self, theta):
        return 0.0 * theta


def walk(sizes, n_steps=4, chains=range(3)):
    """Return the rows seen by each stage with its own batch size, (steps, C, n) a stage."""
    source = DenseRows(torch.zeros(10, 1), torch.arange(10.0)[:, None], torch.ones(10))
    batches = Batches(source, [RowSet(0, 10)] * len(chains), 10, row_generators((1,), chains, CPU))
    line = Timeline(np.ones(n_steps), np.ones(n_steps), np.ones(n_steps, bool), np.zeros(n_steps, bool))
    targets = [Seen() for _ in sizes]
    stages = [Stage(SGLD(), line, target, 1e-9, 1.0, batch_size=size) for target, size in zip(targets, sizes, strict=True)]
    run(stages, torch.zeros(len(chains), 1), batches, BlockNoise(noise_generators((1,), range(1), CPU)))
    return [torch.stack(target.rows) for target in targets]


def test_each_stage_takes_batches_of_its_own_size():
    small, middle, whole = walk([2, 5, None])
    assert small.shape == (4, 3, 2)
    assert middle.shape == (4, 3, 5)
    assert (whole == torch.arange(10.0)).all()


def test_a_stages_batches_are_permutations_and_differ_between_chains():
    middle = walk([5])[0]
    assert (torch.cat([middle[0], middle[1]], dim=1).sort(dim=1).values == torch.arange(10.0)).all()
    assert not torch.equal(middle[:, 0], middle[:, 1])


def test_a_chains_batches_do_not_depend_on_its_company():
    together, alone = walk([2, 5]), walk([2, 5], chains=range(2, 3))
    for some, one in zip(together, alone, strict=True):
        assert torch.equal(some[:, 2:], one)


@both
def test_warm_up_takes_chains_to_a_mode(estimator, y):
    """The cold end of the warm-up lies below where the sampler, at temperature 1, then stays."""
    model = estimator(hidden_layer_sizes=(6,), activation="tanh", random_state=0, max_iter=1000).fit(X, y)
    curve = model.potential_curve_
    assert (curve[40:60].min(axis=0) < curve[0]).all()
    assert estimator(**FAST).fit(X, y).draws_.shape == (5, 4, model.draws_.shape[2])


@both
def test_warm_up_changes_what_is_sampled_from_where_and_0_is_none(estimator, y):
    short, long, none = (estimator(warm_up=epochs, **FAST).fit(X, y) for epochs in (1, 20, 0))
    assert not np.array_equal(short.draws_, long.draws_)
    assert (short.n_steps_, long.n_steps_, none.n_steps_, none.n_iter_) == (60, 60, 60, 60)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_an_optimiser_needs_no_warm_up(name):
    auto, none = (BayesianMLPClassifier(sampler=name, warm_up=epochs, **FAST).fit(X, LABEL) for epochs in ("auto", 0))
    np.testing.assert_array_equal(auto.draws_, none.draws_)


@both
def test_warm_up_does_not_depend_on_the_number_of_workers(estimator, y):
    one, two = (estimator(n_chains=6, n_jobs=n, **FAST).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.draws_, two.draws_)


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ({}, MCLMC),
        ({"temperature": 0.5}, MCLMC),
        ({"temperature": 0.0}, SGHMC),
        ({"learning_rate": 0.01}, SGHMC),
        ({"learning_rate": None}, SGHMC),
        ({"batch_size": 16}, SGHMC),
        ({"bias_factor": 0}, SGHMC),
        ({"schedule": Cyclical(2)}, SGHMC),
        ({"sampler": "sgld"}, SGLD),
    ],
    ids=str,
)
def test_regression_takes_mclmc_where_nothing_stands_against_it(parameters, kind):
    model = BayesianMLPRegressor(**(FAST | parameters)).fit(X, Y)
    assert type(model.sampler_) is kind
    assert kind.__name__ in model.summary()
    assert model.effective_temperature_ == parameters.get("temperature", 1.0)


@pytest.mark.parametrize(
    ("parameters", "kind", "temperature"),
    [
        ({}, MCLMC, 1.0),
        ({"temperature": 0.3}, MCLMC, 0.3),
        ({"batch_size": 16}, MSGLD, 0.5),
        ({"learning_rate": 0.01}, MSGLD, 0.5),
        ({"temperature": 0.0}, MSGLD, 0.0),
        ({"bias_factor": 0}, MSGLD, 1.0),
        ({"sampler": "sgld"}, SGLD, 1.0),
        ({"sampler": "adam"}, Adam, None),
    ],
    ids=str,
)
def test_classification_takes_mclmc_as_well_and_else_a_cold_msgld_and_says_so(parameters, kind, temperature):
    model = BayesianMLPClassifier(**(FAST | parameters)).fit(X, LABEL)
    assert type(model.sampler_) is kind
    assert model.effective_temperature_ == temperature


@pytest.mark.parametrize(("n_columns", "full"), [(1300, True), (1400, False)])
def test_wide_tables_are_taken_in_minibatches(n_columns, full):
    wide = np.random.RandomState(0).randn(100, n_columns)
    model = BayesianMLPRegressor((2,), max_iter=1, warm_up=0, n_draws=1, random_state=0).fit(wide, wide[:, 0])
    assert (model.n_steps_ == 1) == full


def test_auto_has_no_bias_term():
    with pytest.raises(ValueError, match=r"bias_factor=1\.0 needs a sampler with a bias term, and sampler='auto' has none"):
        BayesianMLPRegressor(bias_factor=1.0, **FAST).fit(X, Y)


@both
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("warm_up", -1, "warm_up=-1"),
        ("warm_up", "long", "warm_up='long'"),
        ("learning_rate", "fast", "learning_rate='fast'"),
        ("learning_rate", 0.0, "learning_rate=0.0"),
    ],
)
def test_errors_name_the_parameter(estimator, y, name, value, message):
    with pytest.raises(ValueError, match=message):
        estimator(**(FAST | {name: value})).fit(X, y)


def test_auto_goes_beyond_the_default_where_the_curvature_allows():
    found, default = (
        BayesianMLPClassifier((), sampler="sgld", learning_rate=rate, max_iter=400, random_state=0).fit(X, LABEL).learning_rate_
        for rate in ("auto", None)
    )
    assert (np.asarray(default) <= 0.2).all()
    assert (np.asarray(found) > 0.2).all()


class Noisy:
    """A flat potential whose gradients have standard deviation ``sd``."""

    n_data = 1.0

    def __init__(self, sd):
        self.sd, self.generator = sd, torch.Generator().manual_seed(0)

    def fresh(self):
        return self

    def grad(self, theta):
        return 1e-9 * theta + self.sd * torch.randn(theta.shape, generator=self.generator, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_auto_keeps_the_noise_of_the_gradients_below_its_share_of_the_injected_one(temperature):
    """eps k s2 / (2 tau) = 0.4: with k = 1 and s = 3 eps is 0.8 tau / 9; 50 squares spread by 20 %, their median less."""
    caution = Caution(share=1.0, rise=0.02, longest_wait=0, largest=1e9, noise_ratio=0.4)
    control = StepControl(1.0, 1e12, caution, lambda state: 1.0)
    theta, noise = torch.zeros(2, 500, dtype=torch.float64), BlockNoise(noise_generators((1,), range(1), CPU))
    potential = Noisy(3.0)
    for _ in range(300):
        step = control(Control(1.0, temperature, True, False), theta, potential, noise, state=0).step_size
    np.testing.assert_allclose(step.numpy(), 0.8 * temperature / 9, rtol=0.2)


def test_a_move_with_a_huge_energy_change_is_taken_back_and_the_step_cut():
    class Wall:
        n_data = 1.0

        def value_and_grad(self, theta):
            return 1e6 * theta.square().sum(1), 2e6 * theta

    noise, control = BlockNoise(noise_generators((0,), range(1), CPU)), Control(100.0, 1.0, True, False)
    first = MCLMC().init(torch.ones(4, 3, dtype=torch.float64), Wall(), noise, control)
    after = MCLMC().step(first, Wall(), noise, control)
    assert torch.equal(after.theta, first.theta)
    assert (after.step_factor == 0.5).all()


def hostile(name):
    """Return inputs that are awkward in one way, and a signal that stands in their first column."""
    rng = np.random.RandomState(1)
    n_rows, n_columns = {"2 rows": (2, 3), "20 rows": (20, 3), "300 features": (40, 300)}.get(name, (120, 4))
    Z = rng.randn(n_rows, n_columns)
    signal = Z[:, 0].copy()
    if name == "unscaled":
        Z = Z * 10.0 ** np.arange(-6, 6, 3) + 1e4
    elif name == "constant":
        Z[:, 1:] = 7.0
    elif name == "duplicated":
        Z[:, 1:] = Z[:, :1]
    elif name == "heavy-tailed":
        Z[:, 1:] = rng.standard_cauchy((n_rows, n_columns - 1)) ** 3
    elif name == "binary":
        Z = (Z > 0).astype(float)
        signal = Z[:, 0] - 0.5
    return Z, signal + 0.1 * rng.randn(n_rows)


HOSTILE = ["2 rows", "20 rows", "300 features", "unscaled", "constant", "duplicated", "heavy-tailed", "binary"]


@pytest.mark.parametrize("name", HOSTILE)
def test_default_regressor_is_sensible_on(name):
    """Clearly better than the mean of y wherever there are rows enough to tell; always finite and positive."""
    Z, y = hostile(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianMLPRegressor(max_iter=400, random_state=0).fit(Z, y)
    mean, std = model.predict(Z, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert np.isfinite(model.log_predictive_density(Z, y)).all()
    if len(Z) > 2:
        assert np.mean((mean - y) ** 2) < 0.75 * y.var()


@pytest.mark.parametrize("name", HOSTILE)
def test_default_classifier_is_sensible_on(name):
    Z, y = hostile(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianMLPClassifier(max_iter=400, random_state=0).fit(Z, y > np.median(y))
    proba = model.predict_proba(Z)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    if len(Z) > 2:
        assert model.score(Z, y > np.median(y)) > 0.8


def test_default_classifier_tells_26_classes_apart():
    rng = np.random.RandomState(0)
    y = np.arange(26 * 12) % 26
    Z = np.stack([np.cos(y), np.sin(y), y % 5], axis=1) + 0.02 * rng.randn(len(y), 3)
    assert BayesianMLPClassifier(max_iter=1000, random_state=0).fit(Z, y).score(Z, y) > 0.8


def test_default_classifier_keeps_the_shares_of_classes_ten_to_one():
    rng = np.random.RandomState(0)
    y = (np.arange(220) % 11 == 0).astype(int)
    Z = rng.randn(220, 3) + 1.5 * y[:, None]
    model = BayesianMLPClassifier(max_iter=400, random_state=0).fit(Z, y)
    assert model.predict_proba(Z)[:, 1].mean() == pytest.approx(1 / 11, abs=0.03)


def said(model, X, y):
    """Return what a fit warns of, but for chains that have not mixed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return [message for message in (str(warning.message) for warning in caught) if "not mixed" not in message]


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_hierarchical_prior_below_temperature_1_is_warned_of(temperature):
    """Nothing is learned from X; at temperature 1 there is nothing to say."""
    rng = np.random.RandomState(0)
    noisy = X[:, 0] - X[:, 1] ** 2 + rng.randn(80)
    kinds = (BayesianMLPRegressor, noisy), (BayesianMLPClassifier, LABEL)
    for kind, y in kinds:
        model = kind(hidden_layer_sizes=(20,), prior="hierarchical_normal", temperature=temperature, max_iter=400, random_state=0)
        found = said(model, X, y)
        assert len(found) == (temperature < 1)
        assert all("below 1 this prior draws all weights towards 0" in message and "temperature=1," in message for message in found)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_rows_learned_by_heart_below_temperature_1_are_warned_of(temperature):
    rng = np.random.RandomState(0)
    Z = rng.randn(60, 6)
    model = BayesianMLPRegressor(prior="fan_in_normal", temperature=temperature, max_iter=400, random_state=0)
    found = said(model, Z, Z[:, 0] + 0.3 * rng.randn(60))
    assert len(found) == (temperature < 1)
    assert all("rows learned by heart" in message and "temperature=1," in message for message in found)


@pytest.mark.parametrize(("n_rows", "expected"), [(5, "homoscedastic"), (80, "heteroscedastic")])
def test_few_rows_have_one_noise_level(n_rows, expected):
    model = BayesianMLPRegressor(hidden_layer_sizes=(20,), max_iter=60, random_state=0, warm_start=True).fit(X[:n_rows], Y[:n_rows])
    assert model.noise_ == expected
    assert model.fit(X, Y).noise_ == expected  # chains go on with the parameters that they have
    assert model.set_params(noise=0.5, warm_start=False).fit(X, Y).noise_ == 0.5
    assert BayesianMLPRegressor().partial_fit(X[:5], Y[:5]).noise_ == "heteroscedastic"
