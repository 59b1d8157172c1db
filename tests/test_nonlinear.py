"""Rung 5: targets that are no Gaussian, against quadrature.

For samplers with a bias of first order in eps, 2 m(eps / 2) - m(eps) removes it; |z| < 5 with the spread between chains.
"""

import numpy as np
import pytest
import torch
from mutants import NoGamma, NoProposalRatio
from recipes import inverse_metric

from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.noise import BlockNoise, noise_generators
from sklearn_sgmcmc.samplers import (
    BAOAB,
    MALA,
    MCLMC,
    MSGLD,
    PSGLD,
    SAMPLERS,
    SGHMC,
    SGLD,
    SGRLD,
    NonReversibleHessian,
    NonReversibleSGLD,
    NonReversibleSPSA,
    NonReversibleSPSA2,
)
from sklearn_sgmcmc.samplers.riemannian import divergence

GRID = np.linspace(-60, 60, 240_001)


class Target:
    """U = sum over coordinates of u(theta)."""

    n_data = 1.0

    def __init__(self, u, slope):
        self.u, self.slope = u, slope

    def value(self, theta):
        return self.u(theta.double()).sum(1)

    def grad(self, theta):
        return self.slope(theta)

    def value_and_grad(self, theta):
        return self.value(theta), self.grad(theta)

    def fisher(self, theta):
        return torch.ones_like(theta)


DOUBLE_WELL = Target(lambda x: (x * x - 1) ** 2, lambda x: 4 * x * (x * x - 1))
HEAVY_TAIL = Target(lambda x: 3 * torch.log1p(x * x / 5), lambda x: 6 * x / (5 + x * x))  # Student's t with 5 degrees of freedom
TARGETS = {"double well": DOUBLE_WELL, "heavy tail": HEAVY_TAIL}


def bounded(x):
    return x * x / (1 + x * x)


def density(target, weight=lambda x: 1.0):
    p = np.exp(-target.u(torch.from_numpy(GRID)).numpy()) * weight(GRID)
    return p / p.sum()


def exact(target, weight=lambda x: 1.0):
    return (density(target, weight) * bounded(GRID)).sum()


def chain_means(sampler, target, eps, time, n_chains=64, n_params=256):
    """Return each chain's mean of a bounded function over its parameters and the second half of the time, from exact draws."""
    generator = np.random.RandomState(0)
    start = torch.from_numpy(generator.choice(GRID, p=density(target), size=(n_chains, n_params)))
    noise = BlockNoise(noise_generators((4,), range(n_chains // 4), torch.device("cpu")))
    control = Control(eps, 1.0, adapt=False, collect=False)
    state = sampler.init(start, target, noise, control)
    n_steps, total = int(time / eps), torch.zeros(n_chains, dtype=torch.float64)
    for step in range(n_steps):
        state = sampler.step(state, target, noise, control)
        if step >= n_steps // 2:
            total += bounded(state.theta).mean(1)
    return (total / (n_steps - n_steps // 2)).numpy()


def z_score(means, expected):
    return (means.mean() - expected) / (means.std(ddof=1) / len(means) ** 0.5)


def user_metric(theta):
    return 1 + theta * theta


def its_divergence(theta):
    return 2 * theta


def test_divergence_of_a_users_metric_is_taken_by_automatic_differentiation_or_as_given():
    theta = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(divergence(user_metric, theta), its_divergence(theta))
    torch.testing.assert_close(divergence(inverse_metric, theta), 2.5 * theta)  # (P + 1) theta / 2
    assert not divergence(torch.ones_like, theta).any()


SMALL_STEP = {
    "sgld": (SGLD(), 0.02, 6.0),
    "psgld": (PSGLD(regularizer=1.0), 0.03, 9.0),
    "sgrld": (SGRLD(), 0.03, 9.0),
    "sgrld, K = 1 + theta^2": (SGRLD(user_metric, its_divergence), 0.005, 2.0),
    "sghmc": (SGHMC(0.2), 0.01, 3.0),
    "baoab": (BAOAB(0.3), 0.04, 6.0),
    "msgld recipe": (MSGLD(1.0, 0.8, "recipe"), 0.01, 5.0),
    "nr_sgld": (NonReversibleSGLD(0.5), 0.01, 5.0),
    "nr_sgld_hessian": (NonReversibleHessian(0.5), 0.01, 5.0),
    "nr_sgld_spsa": (NonReversibleSPSA(0.5), 0.01, 5.0),
    "nr_sgld_spsa2": (NonReversibleSPSA2(0.5), 0.01, 5.0),
    "mclmc": (MCLMC(energy_error=None, memory=10.0), 0.01, 3.0),
}
"""Sampler, step size, time (step size times steps)."""


def test_every_small_step_sampler_is_here():
    names = {name for name, kind in SAMPLERS.items() if kind().law == "small step"} | {"msgld recipe"}
    assert names == {name.partition(",")[0] for name in SMALL_STEP}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SMALL_STEP)
def test_law_is_the_target_up_to_first_order_in_the_step(name, target):
    sampler, eps, time = SMALL_STEP[name]
    coarse, fine = (chain_means(sampler, TARGETS[target], e, time) for e in (eps, eps / 2))
    assert abs(z_score(2 * fine - coarse, exact(TARGETS[target]))) < 5


@pytest.mark.parametrize("target", TARGETS)
def test_without_gamma_the_law_is_the_target_over_the_inverse_metric(target):
    _, eps, time = SMALL_STEP["sgrld, K = 1 + theta^2"]
    coarse, fine = (chain_means(NoGamma(user_metric), TARGETS[target], e, time) for e in (eps, eps / 2))
    means = 2 * fine - coarse
    assert abs(z_score(means, exact(TARGETS[target], lambda x: 1 / (1 + x * x)))) < 5
    assert abs(z_score(means, exact(TARGETS[target]))) > 10


def mala_z(kind, target, eps):
    return z_score(chain_means(kind(), TARGETS[target], eps, 200 * eps, n_chains=1024, n_params=2), exact(TARGETS[target]))


@pytest.mark.parametrize(("target", "eps"), [("double well", 0.2), ("heavy tail", 1.0)])
def test_mala_is_exact_at_a_long_step(target, eps):
    assert abs(mala_z(MALA, target, eps)) < 5


@pytest.mark.parametrize(("target", "eps"), [("double well", 0.2), ("heavy tail", 1.0)])
def test_rung_5_rejects_mala_without_the_ratio_of_proposals(target, eps):
    assert abs(mala_z(NoProposalRatio, target, eps)) > 10


@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_mala_is_in_detailed_balance(tau):
    """pi(a) q(b | a) min(1, alpha(a, b)) is symmetric in a and b."""
    control, generator = Control(0.1, tau, False, False), torch.Generator().manual_seed(0)
    here, there = (
        MALA().init(torch.randn(500, 3, generator=generator, dtype=torch.float64), DOUBLE_WELL, None, control) for _ in "ab"
    )

    def log_flow(a, b):
        drift = b.theta - a.theta + 0.1 * a.gradient
        log_q = -drift.square().sum(1) / (4 * 0.1 * tau)
        return -a.value[:, 0] / tau + log_q + MALA.log_acceptance(a, b, control)[:, 0].clamp(max=0)

    torch.testing.assert_close(log_flow(here, there), log_flow(there, here), rtol=1e-12, atol=1e-10)


def test_kernel_of_mala_leaves_the_target_alone_by_quadrature():
    """pi K = pi on a grid, rejections staying where they are."""
    eps, x = 0.1, np.linspace(-3, 3, 401)
    states = MALA().init(torch.from_numpy(x)[:, None], DOUBLE_WELL, None, Control(eps, 1.0, False, False))
    here = type(states)(*(field.repeat_interleave(len(x), 0) for field in states))
    there = type(states)(*(field.repeat(len(x), 1) for field in states))
    log_alpha = MALA.log_acceptance(here, there, Control(eps, 1.0, False, False)).view(len(x), len(x)).numpy()
    q = np.exp(-((x[None] - x[:, None] + eps * states.gradient.numpy()) ** 2) / (4 * eps)) / np.sqrt(4 * np.pi * eps)
    moves = q * np.minimum(1, np.exp(log_alpha)) * (x[1] - x[0])
    pi = np.exp(-states.value[:, 0].numpy())
    np.testing.assert_allclose(pi @ moves + pi * (1 - moves.sum(1)), pi, atol=1e-12)
