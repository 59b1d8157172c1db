"""Simulation-based calibration: parameters drawn from the prior, data from them, chains from the data; by hand, as -m slow.

1,000 replicates run as the chains of one batch, each on rows of its own. Source: Talts et al. 2018; Modrak et al. 2023 (the
log-likelihood as a test quantity).
"""

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from scipy.stats import chisquare, norm

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.batches import Batches, DenseRows, RowSet
from sklearn_sgmcmc.engine import Stage, run
from sklearn_sgmcmc.likelihoods import FixedNoise
from sklearn_sgmcmc.network import MLP, with_constant
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Normal
from sklearn_sgmcmc.samplers import BAOAB, MALA, SGHMC
from sklearn_sgmcmc.schedules import Constant

REPLICATES, N_ROWS, N_NEW, N_DRAWS, BINS = 1000, 20, 100, 399, 20
CASES = {
    "linear, mala": (MLP((2, 1), "tanh"), 0.5, MALA(), 0.004, 20_000),
    "linear, sghmc": (MLP((2, 1), "tanh"), 0.5, SGHMC(), 0.0006, 20_000),
    "tanh, baoab": (MLP((1, 2, 1), "tanh"), 1.0, BAOAB(friction=0.1), 0.005, 40_000),
}
"""Network, noise sd, sampler, step size and steps."""


class Replicates:
    """Draws from the prior and the model, and the chains that they start."""

    def __init__(self, network, sd, sampler, step_size, n_steps):
        self.network, self.sd = network, sd
        self.posterior = Posterior(network, FixedNoise((sd,)), Normal(), float(N_ROWS), float(N_ROWS))
        generator = torch.Generator().manual_seed(0)
        normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
        d = network.widths[0]
        self.truth = normal(REPLICATES, network.n_params)
        self.x, self.x_new = normal(REPLICATES, N_ROWS, d), normal(REPLICATES, N_NEW, d)
        self.y = self.outputs(self.truth, self.x) + sd * normal(REPLICATES, N_ROWS)
        self.y_new = self.outputs(self.truth, self.x_new) + sd * normal(REPLICATES, N_NEW)
        self.draws = self.sample(sampler, step_size, n_steps)

    def outputs(self, theta, x):
        return self.network.forward(theta, with_constant(x))[0][:, 0]

    def sample(self, sampler, step_size, n_steps):
        rows = self.x.flatten(0, 1), self.y.reshape(-1, 1)
        source = DenseRows(*rows, torch.ones(len(rows[0]), dtype=torch.float64))
        sets = [RowSet(k * N_ROWS, N_ROWS) for k in range(REPLICATES)]
        batches = Batches(source, sets, N_ROWS, [torch.Generator()] * REPLICATES)
        timeline = Constant().timeline(n_steps=n_steps, steps_per_epoch=1.0, burn_in=0.1, n_draws=N_DRAWS)
        generator = torch.Generator().manual_seed(1)
        noise = lambda like: torch.randn(like.shape, generator=generator, dtype=like.dtype)  # noqa: E731
        return run([Stage(sampler, timeline, self.posterior, step_size, 1.0)], self.truth, batches, noise).draws

    def quantities(self, theta):
        """Return five numbers for parameters (R, P): output bias, length, predictions at two rows, log-likelihood.

        All are the same at the permutations and reflections of hidden units between which a chain need not jump.
        """
        fitted = self.outputs(theta, self.x)
        row = torch.ones(len(theta), 1, self.x.shape[2], dtype=torch.float64)
        likelihood = -0.5 * ((self.y - fitted) / self.sd).square().sum(1)
        ahead, behind = (self.outputs(theta, sign * row)[:, 0] for sign in (1.0, -1.0))
        columns = (theta[:, -1], theta.square().sum(1), ahead, behind, likelihood)
        return torch.stack(columns, dim=1).numpy()

    def covered(self, level):
        """Return for each replicate which share of its new rows lies in the central predictive interval, (R,)."""
        mean = torch.stack([self.outputs(theta, self.x_new) for theta in self.draws])
        probability = norm.cdf((self.y_new - mean).numpy() / self.sd).mean(axis=0)
        return (abs(probability - 0.5) <= level / 2).mean(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ranks_are_uniform_and_intervals_hold_what_they_promise(name):
    replicates = Replicates(*CASES[name])
    draws = np.stack([replicates.quantities(theta) for theta in replicates.draws])  # (S, R, 5)
    size = array_stats.ess(draws.transpose(1, 2, 0)[:, :, None, :], method="bulk")
    ranks = (draws < replicates.quantities(replicates.truth)).sum(axis=0)
    p = [chisquare(np.bincount(column * BINS // (N_DRAWS + 1), minlength=BINS)).pvalue for column in ranks.T]
    print(f"{name}: least ESS {size.min():.0f}, p {np.round(p, 4)}")
    assert size.min() >= 100
    assert min(p) > 1e-4
    for level in (0.5, 0.8, 0.95):
        share = replicates.covered(level)
        error = share.std() / np.sqrt(REPLICATES)
        print(f"{name}: {level:.0%} intervals hold {share.mean():.2%} +- {error:.2%}")
        assert abs(share.mean() - level) < min(0.02, 4 * error)


# --- what data do to the epistemic part --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_epistemic_sd_in_a_gap_is_thrice_that_inside_the_data(activation):
    rng = np.random.RandomState(0)
    x = np.concatenate([rng.uniform(-2, -1, 100), rng.uniform(1, 2, 100)])[:, None]
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.randn(200)
    model = BayesianMLPRegressor((50,), activation=activation, noise=0.1, max_iter=6000, random_state=0).fit(x, y)
    sd = np.sqrt(model.predict_uncertainty(np.array([[0.0], [-1.5], [1.5]])).epistemic)
    print(activation, sd[0] / sd[1:])
    assert sd[0] >= 3 * sd[1:].max()


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [50, 200, 800])
def test_epistemic_sd_shrinks_as_the_exact_formula_of_the_linear_model(n_rows):
    rng = np.random.RandomState(n_rows)
    x = rng.randn(n_rows, 2)
    y = x @ [1.0, -0.5] + 0.5 * rng.randn(n_rows)
    settings = {"noise": 0.5, "max_iter": 4000, "n_chains": 64, "n_draws": 200, "random_state": 0}
    model = BayesianMLPRegressor((), sampler="mala", **settings).fit(x, y)
    new = rng.randn(20, 2)
    design, at = (np.c_[(rows - x.mean(0)) / x.std(0), np.ones(len(rows))] for rows in (x, new))
    covariance = np.linalg.inv(design.T @ design * (y.std() / 0.5) ** 2 + np.eye(3)) * y.var()
    exact = np.sqrt(np.einsum("ni,ij,nj->n", at, covariance, at))
    found = np.sqrt(model.predict_uncertainty(new).epistemic)
    print(n_rows, (found / exact).min(), (found / exact).max(), found.mean() * np.sqrt(n_rows))
    np.testing.assert_allclose(found, exact, rtol=0.03)
