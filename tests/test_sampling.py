"""sample(): the engine for any potential."""

import numpy as np
import pytest
import torch

from sklearn_sgmcmc.samplers import MSGLD, SAMPLERS, SGHMC
from sklearn_sgmcmc.sampling import sample
from sklearn_sgmcmc.schedules import Cyclical


def gaussian(theta):
    return 0.5 * (theta.square() * torch.tensor([1.0, 4.0], dtype=theta.dtype)).sum(1)


def start(n_chains=64, dtype=torch.float64):
    return torch.zeros(n_chains, 2, dtype=dtype)


@pytest.mark.parametrize("name", [name for name, kind in SAMPLERS.items() if kind().law in ("exact", "small step")])
def test_gaussian_variances(name):
    theta0 = torch.randn(512, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws = sample(gaussian, theta0, sampler=name, step_size=0.02, n_steps=1000, n_draws=20, burn_in=0.5)
    assert draws.shape == (20, 512, 2)
    np.testing.assert_allclose(draws.flatten(0, 1).var(dim=0), [1.0, 0.25], rtol=0.12)


@pytest.mark.parametrize("name", SAMPLERS)
def test_same_seed_same_bits_and_a_given_gradient_equals_autograd(name):
    settings = {"sampler": name, "step_size": 0.01, "n_steps": 50, "n_draws": 5}
    gradient = lambda theta: theta * torch.tensor([1.0, 4.0], dtype=theta.dtype)  # noqa: E731
    one, two = sample(gaussian, start(), **settings), sample(gaussian, start(), **settings)
    assert torch.equal(one, two)
    torch.testing.assert_close(sample(gaussian, start(), gradient=gradient, **settings), one, rtol=1e-9, atol=1e-12)


def test_a_grid_of_hyperparameters_is_just_more_chains():
    grid = torch.tensor([[0.01], [0.05], [0.1], [0.2]], dtype=torch.float64).repeat_interleave(4, 0)
    friction = torch.tensor([[0.1], [0.3], [0.5], [0.9]], dtype=torch.float64).repeat_interleave(4, 0)
    together = sample(gaussian, start(16), sampler=SGHMC(friction), step_size=grid, temperature=grid, n_steps=40, n_draws=5)
    for cell in range(4):
        f, eps = float(friction[4 * cell]), float(grid[4 * cell])
        alone = sample(gaussian, start(4), sampler=SGHMC(f), step_size=eps, temperature=eps, n_steps=40, n_draws=5)
        if cell == 0:  # later cells own other random-number blocks
            assert torch.equal(alone, together[:, :4])


def test_temperature_scales_the_variance():
    tau = torch.tensor([0.25, 1.0, 4.0], dtype=torch.float64).repeat_interleave(400)[:, None]
    draws = sample(gaussian, start(1200), sampler="sghmc", step_size=0.02, temperature=tau, n_steps=1500, n_draws=10)
    found = draws[..., 0].reshape(10, 3, 400).var(dim=(0, 2))
    np.testing.assert_allclose(found, [0.25, 1.0, 4.0], rtol=0.12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"theta0": torch.zeros(3)}, r"theta0 has shape \(3,\)"),
        ({"sampler": "hmc"}, "sampler='hmc' is not known"),
        ({"schedule": "linear"}, "schedule='linear' is not known"),
        ({"potential": lambda x: x}, r"potential returned the shape \(4, 2\)"),
        ({"potential": lambda x: x.sum()}, r"potential returned the shape \(\)"),
        ({"gradient": lambda x: x[:, :1]}, r"gradient returned the shape \(4, 1\)"),
        ({"potential": lambda x: torch.log(x).sum(1)}, r"not finite at theta0 for chains \[0, 1, 2, 3\]"),
        ({"step_size": 10.0, "sampler": "sgld", "n_steps": 5000}, r"4 of 4 chains stopped being finite by step \d+"),
        ({"step_size": torch.ones(3, 1)}, r"shape \(3, 1\): it must be \(4, 1\)"),
        ({"sampler": MSGLD(smoothing=2.0)}, "MSGLD.smoothing=2.0"),
        ({"sampler": SGHMC(gradient_noise_variance=1e6)}, "largest admissible step_size"),
        ({"schedule": Cyclical(), "n_steps": 2}, "no sampling step"),
    ],
)
def test_bad_input_is_an_error(change, message):
    arguments = {"potential": gaussian, "theta0": start(4), "step_size": 0.01, "n_steps": 10, "n_draws": 2} | change
    with pytest.raises(ValueError, match=message):
        sample(arguments.pop("potential"), arguments.pop("theta0"), **arguments)
