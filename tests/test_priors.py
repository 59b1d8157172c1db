"""Priors: densities, gradients and what they do to a fit."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import t

from sklearn_sgmcmc.likelihoods import HomoscedasticNoise
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Laplace, Normal, StudentT

NETWORK = MLP((3, 4, 2), "tanh")
"""3 x 4 + 4 parameters in layer 0 and 4 x 2 + 2 in layer 1."""

SCALES = {
    "float": {"scale": 0.7},
    "layers": {"scale": (0.3, 2.0)},
    "fan-in": {"scale": 0.7, "fan_in": True},
    "layers and fan-in": {"scale": (0.3, 2.0), "fan_in": True},
    "chains": {"scale": torch.tensor([[0.3], [2.0], [1.0]], dtype=torch.float64)},
    "chains and fan-in": {"scale": torch.tensor([[0.3], [2.0], [1.0]], dtype=torch.float64), "fan_in": True},
}
PLACED = [
    *(
        pytest.param(kind(**scale), id=f"{kind.__name__} {name}")
        for kind in (Normal, Laplace, StudentT)
        for name, scale in SCALES.items()
    ),
    pytest.param(StudentT(0.5, 1.0), id="Cauchy"),
]
NORMALISED = [Normal(0.7), Laplace(0.7), Laplace(0.7, fan_in=True), StudentT(0.7), StudentT(0.7, 1.0)]


def random_theta(n_chains=3, n_params=NETWORK.n_params, dtype=torch.float64):
    return torch.randn(n_chains, n_params, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def integral(density):
    """Return the integral from 0 to infinity, in pieces that resolve a spike and a heavy tail."""
    edges = [0.0, *np.geomspace(1e-3, 1e3, 25), np.inf]
    return sum(quad(density, low, high, epsabs=1e-13)[0] for low, high in pairwise(edges))


@pytest.mark.parametrize("prior", PLACED)
def test_gradient_equals_autograd_of_the_value(prior):
    theta = random_theta().requires_grad_()
    density = prior.place(NETWORK.layout())
    (reference,) = torch.autograd.grad(density.value(theta).sum(), theta)
    torch.testing.assert_close(density.grad(theta.detach()), reference, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("prior", [case for case in PLACED if "chains" not in str(case.id)])
def test_bits_of_a_chain_do_not_depend_on_its_company(prior):
    density = prior.place(NETWORK.layout())
    for dtype in (torch.float32, torch.float64):
        theta = random_theta(n_chains=9, dtype=dtype)
        for part in (slice(0, 1), slice(0, 4), slice(4, 9)):
            assert torch.equal(density.grad(theta[part]), density.grad(theta)[part])
            assert torch.equal(density.value(theta[part]), density.value(theta)[part])


@pytest.mark.parametrize("prior", PLACED)
def test_gradient_keeps_the_dtype_and_the_value_is_float64(prior):
    density = prior.place(NETWORK.layout())
    theta = random_theta(dtype=torch.float32)
    assert density.grad(theta).dtype == torch.float32
    assert density.value(theta).dtype == torch.float64


@pytest.mark.parametrize("prior", NORMALISED)
def test_value_is_minus_the_log_of_a_normalised_density(prior):
    """The density is a product: its integral is that over a weight, times that over a bias, over the density at 0 of both."""
    density = prior.place(MLP((1, 1), "tanh").layout())

    def at(weight, bias):
        return float(torch.exp(-density.value(torch.tensor([[weight, bias]], dtype=torch.float64))))

    of_weight, of_bias = (2 * integral(f) for f in (lambda w: at(w, 0.0), lambda b: at(0.0, b)))
    assert of_weight * of_bias / at(0.0, 0.0) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("kind", [Normal, Laplace, StudentT])
def test_scale_has_one_value_per_layer_and_fan_in_shrinks_connection_weights_alone(kind):
    """In units of its scale every parameter has the same law: -log p(scale z) = -log p_1(z) + sum log scale."""
    scale = torch.empty(1, NETWORK.n_params, dtype=torch.float64)
    first, last = NETWORK.layers(scale)
    first.fill_(0.3)
    last.fill_(2.0)
    z = random_theta()
    standard = kind().place(NETWORK.layout()).value(z) + scale.log().sum()
    torch.testing.assert_close(kind(scale=(0.3, 2.0)).place(NETWORK.layout()).value(scale * z), standard)
    first[:, :-1] /= 3**0.5  # (n_in + 1, n_out), bias last
    last[..., :-1] /= 4**0.5  # (n_out, n_in + 1), bias last
    standard = kind().place(NETWORK.layout()).value(z) + scale.log().sum()
    torch.testing.assert_close(kind(scale=(0.3, 2.0), fan_in=True).place(NETWORK.layout()).value(scale * z), standard)


def test_student_t_equals_scipy():
    density = StudentT(0.7, 3.0).place(NETWORK.layout())
    theta = random_theta()
    np.testing.assert_allclose(density.value(theta).numpy(), -t.logpdf(theta.numpy(), 3.0, scale=0.7).sum(1), rtol=1e-12)


@pytest.mark.parametrize("kind", [Normal, Laplace, StudentT])
def test_initial_weights_do_not_exceed_the_prior_scale_of_their_layer(kind):
    posterior = Posterior(NETWORK, HomoscedasticNoise(2), kind(scale=(1e-3, 2.0)), 10.0, 10.0)
    first, last = NETWORK.layers(posterior.initial_scale()[None, : NETWORK.n_params])
    assert (first[:, :-1] == 1e-3).all()
    assert (last[..., :-1] == 0.5).all()  # 1 / sqrt(4), tanh
    assert (first[:, -1] == 0).all()
    assert (last[..., -1] == 0).all()
