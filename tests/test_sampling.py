"""sample(): the engine for any potential."""

import numpy as np
import pytest
import torch

from sklearn_sgmcmc.samplers import (
    ASGLD,
    MCLMC,
    MSGLD,
    PSGLD,
    SAMPLERS,
    SGHMC,
    SGLD,
    SGNHT,
    SGRLD,
    NonReversibleSGLD,
    Sampler,
    Santa,
)
from sklearn_sgmcmc.sampling import sample
from sklearn_sgmcmc.schedules import SCHEDULES, Cyclical


def gaussian(theta):
    return 0.5 * (theta.square() * torch.tensor([1.0, 4.0], dtype=theta.dtype)).sum(1)


def start(n_chains=64, dtype=torch.float64):
    return torch.randn(n_chains, 2, generator=torch.Generator().manual_seed(0), dtype=dtype)


def make(name):
    """Return the sampler; a potential without data has no Fisher information, and takes a metric of its own."""
    return SGRLD(lambda theta: 1.0 / (1.0 + 0.1 * theta.square())) if name == "sgrld" else SAMPLERS[name]()


@pytest.mark.parametrize("name", [name for name, kind in SAMPLERS.items() if kind().law in ("exact", "small step")])
def test_gaussian_variances(name):
    theta0 = torch.randn(512, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws = sample(gaussian, theta0, sampler=make(name), step_size=0.02, n_steps=1000, n_draws=20, burn_in=0.5).values
    assert draws.shape == (20, 512, 2)
    np.testing.assert_allclose(draws.flatten(0, 1).var(dim=0), [1.0, 0.25], rtol=0.12)


@pytest.mark.parametrize("name", SAMPLERS)
def test_same_seed_same_bits_and_a_given_gradient_equals_autograd(name):
    settings = {"sampler": make(name), "step_size": 0.01, "n_steps": 50, "n_draws": 5}
    gradient = lambda theta: theta * torch.tensor([1.0, 4.0], dtype=theta.dtype)  # noqa: E731
    one, two = (sample(gaussian, start(), **settings).values for _ in range(2))
    assert torch.equal(one, two)
    torch.testing.assert_close(sample(gaussian, start(), gradient=gradient, **settings).values, one, rtol=1e-9, atol=1e-12)


def test_a_grid_of_hyperparameters_is_just_more_chains():
    grid = torch.tensor([[0.01], [0.05], [0.1], [0.2]], dtype=torch.float64).repeat_interleave(4, 0)
    friction = torch.tensor([[0.1], [0.3], [0.5], [0.9]], dtype=torch.float64).repeat_interleave(4, 0)
    together = sample(gaussian, start(16), sampler=SGHMC(friction), step_size=grid, temperature=grid, n_steps=40, n_draws=5)
    for cell in range(4):
        f, eps = float(friction[4 * cell]), float(grid[4 * cell])
        alone = sample(gaussian, start(16)[:4], sampler=SGHMC(f), step_size=eps, temperature=eps, n_steps=40, n_draws=5)
        if cell == 0:  # later cells own other random-number blocks
            assert torch.equal(alone.values, together.values[:, :4])


@pytest.mark.parametrize("name", ["mclmc", "mala", "nr_sgld"])
def test_a_gradient_may_be_written_over_the_last_one(name):
    scales, buffer = torch.tensor([1.0, 0.1, 3.0], dtype=torch.float64), torch.empty(8, 3, dtype=torch.float64)

    def potential(x):
        return 0.5 * (x / scales).square().sum(1)

    def draws(gradient):
        theta0 = torch.ones(8, 3, dtype=torch.float64) * scales
        return sample(potential, theta0, sampler=name, step_size=1e-3, n_steps=200, gradient=gradient).values

    assert torch.equal(draws(lambda x: torch.div(x, scales**2, out=buffer)), draws(lambda x: x / scales**2))


def test_temperature_scales_the_variance():
    tau = torch.tensor([0.25, 1.0, 4.0], dtype=torch.float64).repeat_interleave(400)[:, None]
    draws = sample(gaussian, start(1200), sampler="sghmc", step_size=0.02, temperature=tau, n_steps=1500, n_draws=10)
    found = draws.values[..., 0].reshape(10, 3, 400).var(dim=(0, 2))
    np.testing.assert_allclose(found, [0.25, 1.0, 4.0], rtol=0.12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"theta0": torch.zeros(3)}, r"theta0 must be .* shape \(3,\)"),
        ({"sampler": "hmc"}, "sampler='hmc' is not known"),
        ({"schedule": "linear"}, "schedule='linear' is not known"),
        ({"potential": lambda x: x}, r"potential returned a .* shape \(4, 2\)"),
        ({"potential": lambda x: x.sum()}, r"potential returned a .* shape \(\)"),
        ({"gradient": lambda x: x[:, :1]}, r"gradient returned a .* shape \(4, 1\)"),
        ({"potential": lambda x: torch.log(x - 9).sum(1)}, r"not finite at theta0 for chains \[0, 1, 2, 3\]"),
        ({"step_size": 10.0, "sampler": "sgld", "n_steps": 5000}, r"4 of 4 chains .* stopped being finite at step \d+"),
        ({"sampler": "sgrld"}, r"give the metric yourself, SGRLD\(inverse_metric"),
        ({"sampler": SGRLD(lambda x: x[:, :1])}, r"inverse_metric returned the shape \(4, 1\)"),
        ({"sampler": SGRLD(3.0)}, "SGRLD.inverse_metric=3.0 must be a function"),
        ({"sampler": Santa(initial_friction=100.0)}, r"initial_friction=100.0 times sqrt\(step_size\) must be below 1"),
        (
            {"sampler": "mclmc", "theta0": torch.zeros(4, 1), "potential": lambda x: x[:, 0] ** 2},
            "MCLMC needs at least 2 parameters",
        ),
        ({"sampler": "mclmc", "temperature": 0.0}, "reaches 0, where MCLMC is not defined"),
        ({"sampler": "mala", "schedule": "cyclical"}, "reaches 0, where MALA is not defined"),
        ({"temperature": -1.0}, "temperature=-1.0 must be >= 0"),
        ({"step_size": 0.0}, "step_size=0.0 must be > 0"),
        ({"step_size": float("nan")}, "step_size=nan must be a finite number"),
        ({"n_steps": 0}, "n_steps=0 must be an integer >= 1"),
        ({"n_draws": 0}, "n_draws=0 must be an integer >= 1"),
        ({"burn_in": 1.0}, "burn_in=1.0 must be a share"),
        ({"random_state": -1}, "random_state=-1 must be an integer >= 0"),
        ({"theta0": [[0.0, 1.0]]}, "theta0 must be a float32 or float64 tensor"),
        ({"theta0": torch.zeros(4, 2).to_sparse()}, r"theta0 must be .* \(C, P\), dense"),
        ({"potential": 3.0}, "potential=3.0 and gradient=None must be functions"),
        ({"step_size": torch.full((4, 1), 0.1 + 0j)}, "step_size must be a finite number"),
        (
            {"sampler": NonReversibleSGLD(skew=torch.ones(2, 2))},
            r"(?s)NonReversibleSGLD.skew=.* must be a square torch tensor S",
        ),
        ({"sampler": NonReversibleSGLD(skew=torch.zeros(3, 3))}, r"(?s)skew=.* must be a \(2, 2\) matrix"),
        ({"step_size": torch.ones(3, 1)}, r"step_size must be .* shape \(4, 1\).* is a .* shape \(3, 1\)"),
        ({"sampler": MSGLD(smoothing=2.0)}, "MSGLD.smoothing=2.0"),
        ({"sampler": SGHMC(gradient_noise_variance=1e6)}, "largest admissible step_size"),
        ({"schedule": Cyclical(), "n_steps": 2}, "no sampling step"),
        ({"potential": lambda x: None}, r"potential returned None \(NoneType\)"),
        ({"potential": lambda x: x.detach().sum(1).numpy()}, r"potential returned array"),
        ({"potential": lambda x: x.sum(1).int()}, "potential returned a torch.int32 tensor"),
        ({"potential": lambda x: x.sum(1).detach()}, "potential has no gradient by automatic differentiation"),
        ({"gradient": lambda x: x.numpy()}, "gradient returned array"),
        ({"gradient": lambda x: x.int()}, "gradient returned a torch.int32 tensor"),
        ({"theta0": torch.zeros(0, 2)}, r"theta0 must be a float32 or float64 tensor .* shape \(0, 2\)"),
        ({"theta0": torch.zeros(4, 2, dtype=torch.float16)}, "theta0 must be a float32 or float64 tensor"),
        ({"sampler": NonReversibleSGLD(skew=[[0.0, 1.0], [-1.0, 0.0]])}, "must be a square torch tensor S"),
        ({"sampler": SGHMC(friction=torch.tensor([0.9, 0.1]))}, r"SGHMC.friction must be .* shape \(4, 1\)"),
        ({"sampler": SGHMC(friction=np.array([0.9, 0.1]))}, r"SGHMC.friction=array.* must be a number in \(0, 1\]"),
        ({"sampler": ASGLD(preconditioner=PSGLD(decay=torch.zeros(2, 1)))}, r"PSGLD.decay must be .* shape \(4, 1\)"),
        ({"sampler": MCLMC(memory=1e-3)}, "MCLMC.memory=0.001 must be a number >= 0.1"),
        (
            {"sampler": SGRLD(lambda x: torch.tensor([[1.0, 1.8], [0.0, 1.0]]).expand(len(x), 2, 2))},
            "symmetric and positive definite",
        ),
        ({"sampler": SGRLD(lambda x: -torch.ones_like(x))}, "symmetric and positive definite"),
        ({"sampler": SGRLD(lambda x: 1 + x.detach() ** 2)}, "automatic differentiation does not see"),
        ({"sampler": SGRLD(torch.ones_like, lambda x: torch.tensor(100.0))}, r"SGRLD.divergence returned the shape \(\)"),
        ({"sampler": Sampler()}, "sampler=.* is not known"),
    ],
)
def test_bad_input_is_an_error(change, message):
    arguments = {"potential": gaussian, "theta0": start(4), "step_size": 0.01, "n_steps": 10, "n_draws": 2} | change
    with pytest.raises(ValueError, match=message):
        sample(arguments.pop("potential"), arguments.pop("theta0"), **arguments)


def test_the_step_at_which_a_chain_turns_nan_is_named():
    """Chain 2 leaves the domain of its potential at the step at which its parameter passes 1."""

    def gradient(theta):
        return torch.where(theta > 1, torch.nan, torch.tensor([0.0, 0.0, -1.0, 0.0], dtype=theta.dtype)[:, None].expand_as(theta))

    settings = {"sampler": "sgd", "step_size": 0.3, "temperature": 0.0, "n_steps": 2000}
    with pytest.raises(ValueError, match=r"1 of 4 chains \(the first of them: \[2\]\) stopped being finite at step 4;"):
        sample(lambda x: 0 * x.sum(1), torch.zeros(4, 1), gradient=gradient, **settings)  # 0, .3, .87, 1.683, NaN


def test_a_thermostat_without_equilibrium_is_an_error_with_advice():
    """2 a + eps s2 / tau must not exceed (4 - h)^2 / 16: with s2 = 100 it is 5."""
    generator = torch.Generator().manual_seed(0)

    def gradient(theta):
        return theta + 10.0 * torch.randn(theta.shape, generator=generator, dtype=theta.dtype)

    with pytest.raises(
        ValueError, match=r"8 of 8 chains .* diverged at step \d+: the friction ran away above 1.*smaller learning_rate"
    ):
        sample(gaussian, start(8), sampler=SGNHT(thermostat_rate=0.01), step_size=0.05, n_steps=1000, gradient=gradient)


def test_step_of_mclmc_is_adapted_to_the_energy_error_and_then_frozen():
    draws = sample(gaussian, start(), sampler=MCLMC(energy_error=0.1), step_size=1e-4, n_steps=4000, n_draws=10)
    assert (draws.step_size > 1e-2).all()
    fixed = sample(gaussian, start(), sampler=MCLMC(energy_error=None), step_size=1e-4, n_steps=50, n_draws=10)
    assert (fixed.step_size == 1e-4).all()


def test_an_optimiser_keeps_its_last_state():
    assert sample(gaussian, start(), sampler="adam", step_size=0.1, n_steps=500).values.shape == (1, 64, 2)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", SAMPLERS)
def test_every_schedule_goes_with_every_sampler_that_is_defined_at_its_temperatures(name, schedule):
    settings = {"sampler": make(name), "schedule": schedule, "step_size": 0.01, "n_steps": 60, "n_draws": 5}
    if schedule in ("cyclical", "annealed") and not SAMPLERS[name].allows_zero_temperature:
        with pytest.raises(ValueError, match=f"reaches 0, where {SAMPLERS[name].__name__} is not defined"):
            sample(gaussian, start(8), **settings)
    else:
        assert torch.isfinite(sample(gaussian, start(8), **settings).values).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mclmc_starts_where_there_is_no_force(dtype):
    draws = sample(gaussian, torch.zeros(64, 2, dtype=dtype), sampler="mclmc", step_size=0.05, n_steps=2000, n_draws=20)
    assert draws.pooled.var(0)[0] == pytest.approx(1.0, rel=0.2)


def test_mala_that_accepts_nothing_warns_to_decrease_the_step():
    with pytest.warns(RuntimeWarning, match="MALA accepted none of its 20 proposals in 4 of 4 chains.* Use a step_size below 1e"):
        sample(gaussian, start(4), sampler="mala", step_size=1e6, n_steps=20)


def test_a_chain_that_diverges_under_a_full_metric_does_not_disturb_the_others():
    step = torch.tensor([[0.01], [0.01], [0.01], [500.0]], dtype=torch.float64)
    metric = lambda x: torch.eye(2, dtype=x.dtype) + x[:, :, None] * x[:, None, :]  # noqa: E731
    with pytest.raises(ValueError, match=r"1 of 4 chains \(the first of them: \[3\]\) stopped being finite .* step_size below 500"):
        sample(gaussian, start(4), sampler=SGRLD(metric), step_size=step, n_steps=100)


def test_company_changes_no_bit_under_a_dense_skew_matrix():
    S = torch.randn(9, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    theta0 = torch.randn(12, 9, generator=torch.Generator().manual_seed(2))
    settings = {"sampler": NonReversibleSGLD(skew=0.2 * (S - S.T)), "step_size": 0.01, "n_steps": 30}
    eight, twelve = (sample(lambda x: 0.5 * x.square().sum(1), theta0[:n], **settings).values for n in (8, 12))
    assert torch.equal(eight, twelve[:, :8])


def test_checks_of_a_run_are_made_chain_by_chain():
    """eps V <= 2 tau holds for each chain, though not for the largest eps with the largest V."""
    variance, step = (torch.tensor(v, dtype=torch.float64)[:, None] for v in ([100.0, 0, 0, 0], [0.001, 0.1, 0.1, 0.1]))
    sample(gaussian, start(4), sampler=SGLD(gradient_noise_variance=variance), step_size=step, n_steps=10)


def test_sample_works_in_inference_mode_and_leaves_the_start_alone():
    theta0 = start(4)
    with torch.inference_mode():
        draws = sample(gaussian, theta0.clone(), step_size=0.01, n_steps=10)
        assert torch.isfinite(draws.values).all()
    before = theta0.clone()
    sample(gaussian, theta0, gradient=lambda x: x.mul_(1.0).clone(), step_size=0.01, n_steps=10)
    assert torch.equal(theta0, before)


def test_hessian_sampler_takes_a_linear_potential():
    draws = sample(lambda x: x.sum(1), start(4), sampler="nr_sgld_hessian", step_size=0.01, n_steps=20)
    assert torch.isfinite(draws.values).all()
