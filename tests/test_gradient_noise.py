"""The variance of minibatch gradients, and the ratio of their noise to the injected one."""

import numpy as np
import pytest
import torch

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.batches import Batches, DenseRows, RowSet
from sklearn_sgmcmc.diagnostics import gradient_variance, noise_ratio
from sklearn_sgmcmc.likelihoods import FixedNoise
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Normal
from sklearn_sgmcmc.samplers import SGHMC, SGLD


def linear_posterior(n_rows=200):
    """Return a linear posterior with known noise, its rows, and the gradients of each row's -log f at theta = 0.1, (n, 4)."""
    rng = np.random.RandomState(1)
    x, y = rng.randn(n_rows, 3), rng.randn(n_rows, 1)
    posterior = Posterior(MLP((3, 1), "relu"), FixedNoise((0.5,)), Normal(), float(n_rows), float(n_rows))
    source = DenseRows(torch.tensor(x), torch.tensor(y), torch.ones(n_rows, dtype=torch.float64))
    with_one = np.c_[x, np.ones(n_rows)]
    theta = np.full(4, 0.1)
    return posterior, source, theta, (with_one @ theta - y[:, 0])[:, None] * with_one / 0.5**2


def test_variance_of_the_stochastic_gradient_is_that_of_independent_rows():
    posterior, source, theta, by_row = linear_posterior()
    exact = 200**2 / 10 * by_row.var(axis=0)
    batches = Batches(source, [RowSet(0, 200)] * 2, 10, [torch.Generator().manual_seed(k) for k in range(2)], independent=True)
    n = 3000
    found = gradient_variance(posterior, torch.tensor(theta).expand(2, 4), batches, n).numpy()
    kurtosis = 3 + (((by_row - by_row.mean(0)) ** 4).mean(0) / by_row.var(0) ** 2 - 3) / 10
    z = (found / exact - 1) / np.sqrt((kurtosis - 1) / n)
    assert (abs(z) < 5).all()  # p = 6e-7 each


def test_ratio_is_eps_s2_over_two_tau():
    _, _, theta, by_row = linear_posterior()
    state = SGLD().init(torch.tensor(theta)[None], None, None, None)
    variance = torch.tensor(by_row.var(axis=0))[None]
    found = noise_ratio(SGLD(), state, variance, torch.tensor([[0.01]], dtype=torch.float64), 0.7)
    np.testing.assert_allclose(found.numpy(), 0.01 * by_row.var(axis=0)[None] / 1.4, rtol=1e-12)


def test_ratio_of_a_kinetic_sampler_counts_its_friction_and_correction():
    variance = torch.full((1, 4), 3.0, dtype=torch.float64)
    found = noise_ratio(SGHMC(0.2, gradient_noise_variance=1.0), None, variance, torch.tensor([[0.01]], dtype=torch.float64), 1.0)
    np.testing.assert_allclose(found.numpy(), 0.01 * 2.0 / (2 * 0.2), rtol=1e-12)


@pytest.mark.parametrize(("sampler", "rate"), [(SGLD, 0.005), (SGHMC, 0.001)])
def test_ratio_predicts_the_spread_under_independent_batches(sampler, rate):
    rng = np.random.RandomState(0)
    x = rng.randn(1000, 3)
    y = x @ [1.0, -1.0, 0.5] + 0.5 * rng.randn(1000)
    chosen = sampler(gradient_noise_variance=1e-9)  # a correction of nothing, which draws batches independently
    settings = {"noise": 0.5, "batch_size": 50, "max_iter": 150, "n_draws": 100, "n_chains": 64, "random_state": 0}
    model = BayesianMLPRegressor((), sampler=chosen, learning_rate=rate, **settings).fit(x, y)
    design = np.c_[(x - x.mean(0)) / x.std(0), np.ones(1000)]
    exact = np.sqrt(np.diag(np.linalg.inv(design.T @ design * (y.std() / 0.5) ** 2 + np.eye(4))))
    found = (model.draws_.std(axis=(0, 1)) / exact).mean()
    median, _ = model.diagnostics().gradient_noise_ratio
    assert median > 0.3
    assert abs(found / np.sqrt(1 + median) - 1) < 0.04  # 1 % from the length of the steps, 5 standard errors of 0.6 %
