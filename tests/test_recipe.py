"""Rung 1: noise 0 gives the drift and unit noise the diffusion that the complete recipe declares, on no Gaussian."""

import numpy as np
import pytest
import torch
from laws import RecordedNoise
from mutants import DRIFT_MUTANTS, louder
from table import RECIPES, held, random_settings

from sklearn_sgmcmc._typing import Control

P, TAU = 2, 0.7
SHORT = 1e-5
"""Time step at which a sampler's increments are compared: its error is of first order in it, or in its square root at most."""
CLOSE = 0.02


class Coupled:
    """U = sum theta^4 / 4 + theta_0 theta_1 / 2 + sin theta_0."""

    n_data = 1.0

    def value(self, theta):
        return theta.pow(4).sum(1) / 4 + 0.5 * theta[:, 0] * theta[:, 1] + theta[:, 0].sin()

    def grad(self, theta):
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            return torch.autograd.grad(self.value(leaf).sum(), leaf)[0]

    def fisher(self, theta):
        return torch.ones_like(theta)


def declared(process, z):
    """Return -(D + Q) grad H + tau Gamma, and D."""
    z = z.clone().requires_grad_()
    gradient = torch.autograd.grad(process.energy(z), z)[0]
    matrix = process.diffusion(z) + process.curl(z)
    derivative = torch.autograd.functional.jacobian(lambda x: process.diffusion(x) + process.curl(x), z)
    return (-matrix @ gradient + TAU * torch.einsum("ijj->i", derivative)).detach(), process.diffusion(z).detach()


def increments(process, z, dt, held):
    """Return the mean increment of z per time, and the covariance of its increment per time."""
    sampler, control = process.tuned(dt), Control(process.step_size(dt), TAU, adapt=False, collect=False)
    template = sampler.init(z[None, :P], Coupled(), RecordedNoise(), control)
    units = {name: dt ** process.unit.get(name, 0) for name in process.names}
    sizes = [getattr(template, name).numel() for name in process.names]
    fields = {name: part[None] * units[name] for name, part in zip(process.names, z.split(sizes), strict=True)}
    fields |= {
        name: torch.as_tensor(value, dtype=torch.float64).expand_as(getattr(template, name))
        for name, value in held.items()
        if name not in process.names
    }
    state = template._replace(**fields)

    def after(values=()):
        noise = RecordedNoise(values)
        new = sampler.step(state, Coupled(), noise, control)
        return torch.cat([getattr(new, name).flatten() / units[name] for name in process.names]), noise.shapes

    origin, shapes = after()
    columns = []
    for call, shape in enumerate(shapes):
        for unit in torch.eye(shape[1], dtype=torch.float64):
            values = [torch.zeros(s, dtype=torch.float64) for s in shapes]
            values[call] = unit[None]
            columns.append(after(values)[0] - origin)
    B = torch.stack(columns, dim=1)
    return (origin - z) / dt, B @ B.T / dt


def gaps(row, index, dt=SHORT, mutant=None):
    """Return the largest errors of drift and diffusion, relative to their sizes."""
    *_, rng = random_settings(index)
    sampler = row.make(rng)
    sampler = sampler if mutant is None else mutant(sampler)
    process = row.recipe(sampler, lambda theta: Coupled().value(theta[None])[0], P)
    z = torch.from_numpy(rng.uniform(0.5, 1.5, process.size) * rng.choice([-1, 1], process.size))
    (drift, diffusion), found = declared(process, z), increments(process, z, dt, held(row, sampler))
    return [float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, (drift, 2 * TAU * diffusion), strict=True)]


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("name", RECIPES)
def test_a_short_step_is_the_declared_process(name, index):
    assert max(gaps(RECIPES[name], index)) < CLOSE


@pytest.mark.parametrize("name", RECIPES)
def test_the_declared_curl_is_skew_and_the_diffusion_positive(name):
    process = RECIPES[name].recipe(RECIPES[name].make(np.random.RandomState(0)), lambda theta: theta.sum(), P)
    for seed in range(5):
        z = torch.randn(process.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        D, Q = process.diffusion(z), process.curl(z)
        assert torch.equal(Q, -Q.T)
        assert torch.linalg.eigvalsh(D).min() >= 0


@pytest.mark.parametrize("name", DRIFT_MUTANTS)
def test_rung_1_rejects_the_mutant(name):
    """Each has a wrong sign in a term that vanishes on Gaussians with adaptation held: no other rung but quadrature sees it."""
    row, mutant = DRIFT_MUTANTS[name]
    assert max(gaps(RECIPES[row], 0, mutant=mutant)) > 10 * CLOSE


@pytest.mark.parametrize("name", RECIPES)
def test_rung_1_is_blind_to_noise_that_is_a_thousandth_too_large(name):
    assert max(gaps(RECIPES[name], 0, mutant=lambda sampler: louder(sampler, 1.001))) < CLOSE
