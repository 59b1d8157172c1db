"""Rung 6: what must not change a chain does not: its company, its position, float or tensor hyperparameters, precision."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from laws import RecordedNoise
from mutants import SharedThermostat

from sklearn_sgmcmc._typing import Control
from sklearn_sgmcmc.batches import Batches, DenseRows, RowSet
from sklearn_sgmcmc.engine import Stage, run
from sklearn_sgmcmc.likelihoods import Categorical
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.noise import BlockNoise, noise_generators, row_generators
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Normal
from sklearn_sgmcmc.samplers import SAMPLERS, SGNHT
from sklearn_sgmcmc.schedules import Timeline

CPU = torch.device("cpu")
N_ROWS, N_STEPS, CELL = 40, 12, 4
FACTORS = (1.0, 0.5, 1.2)
"""A grid of three cells of four chains: each multiplies step size, temperature, prior scale and a sampler's fields."""
DIMENSIONLESS = {"smoothing", "decay", "beta1", "beta2", "memory", "momentum", "friction", "noise_level"}
"""Fields with an upper bound below 1.2 times their default: these are divided by at least 1.2."""


def source(dtype):
    rng = np.random.RandomState(0)
    x, labels = torch.from_numpy(rng.randn(N_ROWS, 3)).to(dtype), torch.from_numpy(rng.randint(0, 3, N_ROWS))
    return DenseRows(x, torch.eye(3, dtype=dtype)[labels], torch.ones(N_ROWS, dtype=dtype))


def per_chain(values):
    return torch.tensor(values, dtype=torch.float64).repeat_interleave(CELL)[:, None]


def varied(kind, factor):
    """Return the sampler with every float field multiplied."""
    sampler = kind()
    for field in fields(kind):
        value = getattr(sampler, field.name)
        if isinstance(value, float):
            setattr(sampler, field.name, value * (factor / 1.2 if field.name in DIMENSIONLESS else factor))
    return sampler


def batched(kind):
    """Return the sampler with every float field as a tensor over the grid."""
    cells = [varied(kind, factor) for factor in FACTORS]
    sampler = kind()
    for field in fields(kind):
        if isinstance(getattr(sampler, field.name), float):
            setattr(sampler, field.name, per_chain([getattr(cell, field.name) for cell in cells]))
    return sampler


def draws(sampler, eps, tau, prior_scale, n_chains, dtype):
    """Return the states of a run over minibatches; chain c of a cell has the generators of chain c of a fit of its own."""
    posterior = Posterior(MLP((3, 5, 3), "tanh"), Categorical(3), Normal(prior_scale), float(N_ROWS), float(N_ROWS))
    start = torch.randn(CELL, posterior.n_params, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    noise = BlockNoise(noise_generators((5,), [0] * (n_chains // CELL), CPU))
    batch_size = N_ROWS if "full_batch" in sampler.needs else 10
    rows = row_generators((5,), [chain % CELL for chain in range(n_chains)], CPU)
    batches = Batches(source(dtype), [RowSet(0, N_ROWS)] * n_chains, batch_size, rows)
    ones, adapt = np.ones(N_STEPS), np.arange(N_STEPS) < N_STEPS // 2
    timeline = Timeline(ones, ones, adapt, collect=~adapt)
    stage = Stage(sampler, timeline, posterior, eps, tau)
    return run([stage], 0.3 * start.repeat(n_chains // CELL, 1), batches, noise).draws


def cells(kind, dtype):
    """Return the grid in one batch, and cell by cell."""
    step = 1e-3
    eps, tau, prior = per_chain([step * f for f in FACTORS]), per_chain(FACTORS), per_chain(FACTORS)
    together = draws(batched(kind), eps, tau, prior, CELL * len(FACTORS), dtype)
    alone = [draws(varied(kind, f), step * f, f, f, CELL, dtype) for f in FACTORS]
    return together, torch.cat(alone, dim=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_grid_in_one_batch_equals_its_cells_alone_bit_for_bit(name, dtype):
    together, alone = cells(SAMPLERS[name], dtype)
    assert torch.isfinite(together).all()
    assert torch.equal(together, alone)


def test_rung_6_rejects_a_thermostat_shared_by_chains():
    together, alone = cells(SharedThermostat, torch.float64)
    assert (together - alone).abs().max() > 1e-6
    together, alone = cells(SGNHT, torch.float64)
    assert torch.equal(together, alone)


@pytest.mark.parametrize("name", SAMPLERS)
def test_chains_permute(name):
    """With recorded noise and indices, permuted chains give the permuted result to 1e-12."""
    posterior = Posterior(MLP((3, 5, 3), "tanh"), Categorical(3), Normal(1.0), float(N_ROWS), float(N_ROWS))
    generator = torch.Generator().manual_seed(2)
    start = 0.3 * torch.randn(6, posterior.n_params, generator=generator, dtype=torch.float64)
    recorded = [torch.randn(6, 200, generator=generator, dtype=torch.float64) for _ in range(400)]
    index = torch.randint(N_ROWS, (6, 10), generator=generator)
    order = torch.tensor([3, 1, 5, 0, 2, 4])

    class Narrow(RecordedNoise):
        def __call__(self, like):
            self.shapes.append(tuple(like.shape))
            return self.values[len(self.shapes) - 1][:, : like[0].numel()].view(like.shape)

    def final(chains):
        sampler, noise = SAMPLERS[name](), Narrow([values[chains] for values in recorded])
        potential = posterior.bind(source(torch.float64).take(index[chains]))
        potential = type(potential)(posterior, potential.batch, iter([source(torch.float64).take(index[chains])] * 100))
        control = Control(1e-3, 0.8, adapt=True, collect=False)
        state = sampler.init(start[chains], potential, noise, control)
        for _ in range(5):
            state = sampler.step(state, potential, noise, control)
        return state.theta

    torch.testing.assert_close(final(order), final(torch.arange(6))[order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SAMPLERS)
def test_float32_is_near_float64(name):
    """After 12 steps from the same start with zero noise and full batches; 1e-4 is a thousand roundings."""
    kind = SAMPLERS[name]
    posterior = Posterior(MLP((3, 5, 3), "tanh"), Categorical(3), Normal(1.0), float(N_ROWS), float(N_ROWS))
    start = 0.3 * torch.randn(4, posterior.n_params, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    class Half:
        def __call__(self, like):
            return torch.full_like(like, 0.5)

    ends = []
    for dtype in (torch.float32, torch.float64):
        batches = Batches(source(dtype), [RowSet(0, N_ROWS)] * 4, N_ROWS, row_generators((5,), range(4), CPU))
        ones, adapt = np.ones(N_STEPS), np.arange(N_STEPS) < N_STEPS // 2
        stage = Stage(kind(), Timeline(ones, ones, adapt, collect=~adapt), posterior, 1e-4, 1.0)
        ends.append(run([stage], start.to(dtype), batches, Half()).draws[-1].double())
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-4, atol=1e-4)
