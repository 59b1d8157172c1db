"""Rung 3: chains that start AT their exact law stay there, with the shipped engine and generators.

2^17 pairs of parameters, mostly as 64 chains of 2048 pairs on a block-diagonal Gaussian, run for as long as it takes to leave a
wrong law: T = 1 / (1 - rho^2) steps, rho the spectral radius. Every statistic of the last state is a mean over independent pairs
with a known standard error; |z| < 5 has p = 6e-7. Noise that is not independent fails.
"""

from itertools import repeat

import numpy as np
import pytest
import torch
from laws import covariance, spectral_radius
from mutants import NOISE_MUTANTS, louder, turned_into
from table import AFFINE, held, random_settings

from sklearn_sgmcmc.engine import Stage, run
from sklearn_sgmcmc.noise import BlockNoise, noise_generators
from sklearn_sgmcmc.schedules import Timeline

N_PAIRS = 2**17
CURVATURE = torch.tensor([[1.5, 0.6], [0.6, 1.0]], dtype=torch.float64)
CPU = torch.device("cpu")


class Pairs:
    """U = sum over pairs of x^T L x / 2, with gradient noise of variance s2."""

    n_data = 1.0

    def __init__(self, n_params, s2):
        self.n_params = n_params
        self.sd = s2**0.5
        self.generator = torch.Generator().manual_seed(99)

    def bind(self, batch, following):
        return self

    def grad(self, theta):
        force = (theta.view(-1, 2) @ CURVATURE).view_as(theta)
        return force if self.sd == 0 else force + self.sd * torch.randn(theta.shape, generator=self.generator, dtype=theta.dtype)

    def value(self, theta):
        return 0.5 * (theta * (theta.view(-1, 2) @ CURVATURE).view_as(theta)).sum(1)

    def value_and_grad(self, theta):
        return self.value(theta), self.grad(theta)

    def fisher(self, theta):
        return torch.ones_like(theta)


def expand(value, template):
    """Return the held value of a pair for all pairs; a skew matrix couples the two of a pair alone."""
    value = torch.as_tensor(value, dtype=torch.float64)
    if template.shape[-1] % 2:  # the subdiagonal
        return (value * (torch.arange(template.shape[-1]) % 2 == 0)).expand_as(template).contiguous()
    return value.expand_as(template).contiguous()


def at_its_law(sampler, law, fields):
    """Return the sampler with an ``init`` that draws the whole state from the exact law."""
    root = np.linalg.cholesky(law + 1e-14 * np.eye(len(law)))

    class AtItsLaw(type(sampler)):
        def init(self, theta, potential, noise, control):
            template = super().init(theta, potential, noise, control)
            moving = [name for name in template._fields if name not in fields]
            C, P = theta.shape
            z = torch.randn(len(law), C, P // 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
            x = torch.einsum("ij,jcp->icp", torch.from_numpy(root), z)
            parts = {name: x[2 * k : 2 * k + 2].permute(1, 2, 0).reshape(C, -1) for k, name in enumerate(moving)}
            return template._replace(**parts, **{name: expand(value, getattr(template, name)) for name, value in fields.items()})

    return turned_into(AtItsLaw)(sampler)


def z_scores(name, noise_mutant=lambda noise: noise, factor=1.0):
    """Return the z-scores of the means, the three covariances of a pair, and the covariance between neighbouring chains."""
    row = AFFINE[name]
    _, eps, tau, s2, rng = random_settings(3)
    sampler = row.make(rng)
    if hasattr(sampler, "n_pairs"):
        sampler.n_pairs = None  # the free entries of all neighbours, of which every other one is held at 0
    settings = {"step_size": eps, "temperature": tau, "gradient_variance": 0.0 if row.exact_gradient else s2}
    fields = held(row, sampler)
    law = covariance(sampler, curvature=CURVATURE, held=fields, **settings)
    rho = spectral_radius(sampler, curvature=CURVATURE, held=fields, **settings)
    n_chains = 4096 if "sensitivity" in fields else 64  # D has P (P - 1) numbers per chain
    n_params = 2 * N_PAIRS // n_chains
    n_steps = int(np.clip(np.ceil(1 / (1 - rho**2)), 20, 200))
    ones, last = np.ones(n_steps), np.arange(n_steps) == n_steps - 1
    timeline = Timeline(ones, ones, adapt=np.zeros_like(last), collect=last)
    started = at_its_law(louder(sampler, factor) if factor != 1 else sampler, law, fields)
    stage = Stage(started, timeline, Pairs(n_params, settings["gradient_variance"]), eps, tau)
    noise = noise_mutant(BlockNoise(noise_generators((7,), range(n_chains // 4), CPU)))
    draws = run([stage], torch.zeros(n_chains, n_params, dtype=torch.float64), repeat(None), noise).draws
    return statistics(draws[-1].view(n_chains, -1, 2).numpy(), law[:2, :2])


def statistics(x, law):
    n = N_PAIRS
    scores = [x[..., i].mean() / np.sqrt(law[i, i] / n) for i in range(2)]
    for i, j in ((0, 0), (0, 1), (1, 1)):
        scores.append(((x[..., i] * x[..., j]).mean() - law[i, j]) / np.sqrt((law[i, i] * law[j, j] + law[i, j] ** 2) / n))
    scores.append((x[0::2] * x[1::2]).mean() / np.sqrt(np.trace(law @ law) / 4 / (n / 2)))
    return np.array(scores)


@pytest.mark.parametrize("name", AFFINE)
def test_a_chain_at_its_law_stays_there(name):
    assert np.abs(z_scores(name)).max() < 5


@pytest.mark.parametrize("name", ["sgld", "sghmc", "msgld recipe", "baoab"])
def test_the_same_statistics_reject_noise_that_is_a_twentieth_too_large(name):
    assert np.abs(z_scores(name, factor=1.05)).max() > 10


def test_the_same_statistics_are_blind_to_noise_that_is_a_thousandth_too_large():
    assert np.abs(z_scores("sgld", factor=1.001)).max() < 5


@pytest.mark.parametrize("mutant", NOISE_MUTANTS)
def test_rung_3_rejects_noise_that_is_not_independent(mutant):
    assert np.abs(z_scores("sgld", NOISE_MUTANTS[mutant])).max() > 10
