"""Steps are capped by curvature during burn-in where the user gave no learning rate."""

import numpy as np
import pytest
import torch

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.noise import BlockNoise, noise_generators
from sklearn_sgmcmc.step_control import CLOSE, NOISY, StepControl


class Diagonal:
    """U = sum_p curvature_p theta_p^2 / 2, one curvature vector per chain."""

    n_data = 1.0

    def __init__(self, curvature):
        self.curvature = curvature

    def grad(self, theta):
        return self.curvature * theta


def follow(curvatures, adapt, caution=CLOSE, limit=2.0):
    """Return the step sizes that a control gives along a path of potentials."""
    control = StepControl(1e3, limit, caution)
    theta = torch.zeros_like(curvatures[0])
    noise = BlockNoise(noise_generators((1,), range(-(-len(theta) // 4)), torch.device("cpu")))
    steps = [
        control(Control(1e3, 1.0, now, False), theta, Diagonal(c), noise).step_size
        for c, now in zip(curvatures, adapt, strict=True)
    ]
    return torch.stack(steps)[..., 0].numpy()


PATH = [torch.linspace(0.1, 1, 20, dtype=torch.float64)[None] * torch.tensor([[1.0], [10.0], [300.0]], dtype=torch.float64)] * 200


@pytest.mark.parametrize("caution", [CLOSE, NOISY])
def test_cap_is_the_share_of_the_stability_limit(caution):
    steps = follow(PATH * 20, [True] * 4000, caution)
    np.testing.assert_allclose(
        steps[-1] * np.array([1.0, 10.0, 300.0]), caution.share * 2.0, rtol=0.05
    )  # the second eigenvalue is 5 % smaller


def test_cap_is_frozen_when_adaptation_ends():
    rising = [PATH[0] * (1 + t) for t in range(200)]
    steps = follow(rising, [t < 100 for t in range(200)])
    assert (steps[99:] == steps[99]).all()
    assert (steps[99] < steps[10]).all()


def test_a_rise_of_stiff_curvature_is_followed_within_a_look():
    rising = [PATH[0] * 1.05**t for t in range(100)]  # 130 times in 100 steps
    steps = follow(rising, [True] * 100)
    truth = np.array([float(c[0].max()) for c in rising])
    assert (steps[:, 0] * truth < 2.0).all()


def test_a_chains_cap_does_not_depend_on_its_company():
    path = [PATH[0][:1] * torch.arange(1, 9, dtype=torch.float64)[:, None] ** t for t in (0, 1, 2, 3) * 10]
    together, alone = follow(path, [True] * 40), follow([c[:4] for c in path], [True] * 40)
    np.testing.assert_array_equal(together[:, :4], alone)


def stiff_data():
    rng = np.random.RandomState(0)
    X = rng.randn(80, 4)
    return X, X[:, 0] - X[:, 1] ** 2  # no noise at all: the learned sd falls as long as the fit improves


@pytest.mark.parametrize("noise", ["homoscedastic", "heteroscedastic"])
@pytest.mark.parametrize("sampler", ["sgld", "msgld", "sghmc"])
@pytest.mark.parametrize("batch_size", ["auto", 20])
def test_no_chain_dies_on_stiff_data(noise, sampler, batch_size):
    X, y = stiff_data()
    model = BayesianMLPRegressor((16,), noise=noise, sampler=sampler, batch_size=batch_size, max_iter=1000, random_state=0).fit(
        X, y
    )
    assert model.draws_.shape[1] == 4
    by_chain = model.sample_posterior(X).reshape(50, 4, 80).mean(axis=0)
    rmse = np.sqrt(((by_chain - y) ** 2).mean(axis=1))
    assert (rmse < 0.5 * y.std()).all()  # a dead chain predicts a constant: its RMSE is y.std()


def test_the_same_data_kill_chains_whose_steps_are_not_capped():
    X, y = stiff_data()
    with pytest.raises(ValueError, match="diverged"):
        BayesianMLPRegressor((16,), sampler="sgld", learning_rate=0.2, noise=0.01, random_state=0).fit(X, y)
    assert (BayesianMLPRegressor((16,), sampler="sgld", noise=0.01, random_state=0).fit(X, y).learning_rate_ < 0.01).all()


def test_a_given_learning_rate_is_never_altered():
    X, y = stiff_data()
    assert BayesianMLPRegressor((4,), learning_rate=0.001, max_iter=200, random_state=0).fit(X, y).learning_rate_ == 0.001


def test_a_wide_network_is_kept_stable():
    X, y = stiff_data()
    model = BayesianMLPClassifier((1000,), sampler="sgld", max_iter=100, random_state=0).fit(X, y > 0)
    assert (np.asarray(model.learning_rate_) < 0.2).all()
    assert model.score(X, y > 0) > 0.8


def test_easy_classification_keeps_the_samplers_default():
    X, y = stiff_data()
    model = BayesianMLPClassifier((4,), sampler="sghmc", learning_rate=None, max_iter=200, random_state=0).fit(X, y > 0)
    assert model.learning_rate_ == 0.03


def test_msgld_without_bias_is_sgld_bit_for_bit_at_the_defaults():
    X, y = stiff_data()
    for estimator, target in ((BayesianMLPClassifier, y > 0), (BayesianMLPRegressor, y)):
        models = [
            estimator((4,), sampler=name, bias_factor=0, batch_size=20, max_iter=50, random_state=0).fit(X, target)
            for name in ("sgld", "msgld")
        ]
        np.testing.assert_array_equal(models[0].draws_, models[1].draws_)


@pytest.mark.parametrize("sampler", ["sgld", "sghmc"])
def test_where_the_prior_decides_its_scale_is_found(sampler):
    """The cut leaves at most 1 / (1 - 0.125) of the variance, 7 % of the sd."""
    X, y = stiff_data()
    model = BayesianMLPClassifier((5,), sampler=sampler, prior_scale=0.01, n_chains=64, max_iter=500, random_state=0).fit(X, y > 0)
    assert 0.95 < model.draws_.std() / 0.01 < 1.1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_curvature_beyond_the_square_root_of_float32_is_seen(dtype):
    X, y = stiff_data()
    model = BayesianMLPRegressor((), sampler="sgld", dtype=dtype, random_state=0, max_iter=200)
    assert (np.asarray(model.fit(X, y, sample_weight=np.full(len(X), 1e14)).learning_rate_) < 0.2).all()


def test_the_mean_hessian_counts_not_that_of_a_noisy_batch():
    """Batches alternate between two curvatures of other coordinates: the mean has half of each."""
    one = torch.tensor([[4.0, 0.0, 1.0]], dtype=torch.float64)
    other = torch.tensor([[0.0, 4.0, 1.0]], dtype=torch.float64)
    steps = follow([one, other] * 3000, [True] * 6000, NOISY)
    assert float(steps[-1, 0]) == pytest.approx(NOISY.share * 2.0 / 2.0, rel=0.25)
