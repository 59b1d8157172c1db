"""Priors: densities, gradients, and the moments of draws."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import gamma, multivariate_normal, multivariate_t, norm, t

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.likelihoods import HomoscedasticNoise
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import FanInNormal, HierarchicalNormal, Laplace, Normal, SpikeSlab, StudentT
from sklearn_sgmcmc.sampling import sample

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
    *(pytest.param(HierarchicalNormal(**scale, df=0.7), id=f"HierarchicalNormal {name}") for name, scale in SCALES.items()),
    pytest.param(StudentT(0.5, 1.0), id="Cauchy"),
    pytest.param(SpikeSlab(), id="SpikeSlab"),
    pytest.param(SpikeSlab((2.0, 0.5), (0.5, 0.02), (0.1, 0.9)), id="SpikeSlab layers"),
]
NORMALISED = [Normal(0.7), Laplace(0.7), Laplace(0.7, fan_in=True), StudentT(0.7), StudentT(0.7, 1.0), SpikeSlab(0.7, 0.01, 0.2)]


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
    torch.testing.assert_close(density.grad(theta.detach()), reference, rtol=1e-10, atol=1e-10)


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


def test_fan_in_of_a_number_leaves_narrower_layers_alone():
    """Layers of 3 and 4 inputs: beyond 3.5 the second is narrower by sqrt(3.5 / 4), beyond 64 neither is."""
    layout, theta = NETWORK.layout(), random_theta()
    torch.testing.assert_close(FanInNormal(0.7).place(layout).value(theta), Normal(0.7).place(layout).value(theta), rtol=0, atol=0)
    found = FanInNormal(0.7, fan_in=3.5).placed_scale(layout)
    assert sorted(set(found.flatten().tolist())) == pytest.approx([0.7 * (3.5 / 4) ** 0.5, 0.7])
    assert int((found < 0.7).sum()) == 4 * 2


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


# --- spike and slab ----------------------------------------------------------------------------------------------------------


def slab_share(w, slab, spike, share):
    """Return P(slab | w) by Bayes' rule."""
    parts = share * norm.pdf(w, scale=slab), (1 - share) * norm.pdf(w, scale=spike)
    return parts[0] / sum(parts)


@pytest.mark.parametrize(("slab", "spike", "share"), [(1.0, 0.05, 0.5), (0.1, 1e-3, 1e-3), (2.0, 1.5, 0.4), (1.0, 1e-4, 0.9)])
def test_threshold_is_where_slab_and_spike_are_equally_probable(slab, spike, share):
    threshold = SpikeSlab(slab, spike, share).place(MLP((1, 1), "tanh").layout()).threshold
    root = brentq(lambda w: slab_share(w, slab, spike, share) - 0.5, 0.0, 8 * spike, xtol=1e-15)
    assert threshold[0, 0] == pytest.approx(root, rel=1e-9)
    assert threshold[0, 1] == 0  # the bias


@pytest.mark.parametrize("share", [0.7, 0.99])
def test_threshold_is_zero_where_the_slab_is_more_probable_even_at_zero(share):
    """(1 - lambda) s1 <= lambda s0: 0.3 * 1 < 0.7 * 0.5."""
    assert slab_share(0.0, 1.0, 0.5, share) > 0.5
    assert (SpikeSlab(1.0, 0.5, share).place(NETWORK.layout()).threshold == 0).all()


def test_spike_and_slab_has_its_own_numbers_in_each_layer():
    theta = random_theta() * 0.1
    both = SpikeSlab((2.0, 0.5), (0.1, 0.02), (0.1, 0.9)).place(NETWORK.layout()).grad(theta)
    for layer, numbers in enumerate([(2.0, 0.1, 0.1), (0.5, 0.02, 0.9)]):
        alone = SpikeSlab(*numbers).place(NETWORK.layout()).grad(theta)
        assert torch.equal(NETWORK.layers(both)[layer], NETWORK.layers(alone)[layer])


def test_biases_have_the_slab_alone():
    theta = random_theta()
    is_bias = ~NETWORK.layout().is_weight
    normal, mixture = (prior.place(NETWORK.layout()).grad(theta) for prior in (Normal(0.7), SpikeSlab(0.7, 0.01)))
    torch.testing.assert_close(mixture[:, is_bias], normal[:, is_bias], rtol=1e-15, atol=0)


@pytest.mark.parametrize("spike", [0.05, 1e-3, 1e-5])
def test_float32_gradient_is_accurate_through_the_transition(spike):
    """The log-odds d stay below 3 log(1 / spike) < 35 up to twice the threshold: rounding moves them by 3 u d, u = 6e-8."""
    density = SpikeSlab(1.0, spike).place(MLP((1, 1), "tanh").layout())
    w = torch.zeros(401, 2)
    w[:, 0] = torch.linspace(0.0, 2 * float(density.threshold[0, 0]), 401)
    torch.testing.assert_close(density.grad(w).double(), density.grad(w.double()), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("factor", "limit"), [(1.0, 5.0), (0.9, None)])
def test_sampled_spike_and_slab_has_the_moments_of_the_mixture(factor, limit):
    """Chains start at the exact law and must stay there, |z| < 5 (p = 6e-7); with a gradient 10 % too weak they must not.

    BAOAB's own relative error at eps = s0^2 / 20 is at most of order (eps / s0^2)^2 = 0.0025, under half a standard error.
    """
    slab, spike, share, n = 1.0, 0.2, 0.4, 2**11
    density = SpikeSlab(slab, spike, share).place(MLP((63, 1), "tanh").layout())
    generator = torch.Generator().manual_seed(0)
    in_slab = torch.rand(n, 64, generator=generator) < share
    in_slab[:, 63] = True  # the bias
    start = torch.randn(n, 64, generator=generator, dtype=torch.float64) * torch.where(in_slab, slab, spike)
    draws = sample(
        density.value,
        start,
        gradient=lambda w: factor * density.grad(w),
        sampler="baoab",
        step_size=spike**2 / 20,
        n_steps=300,
        n_draws=1,
    )
    w = draws.values[0, :, :63].flatten().numpy()

    def mean(f):
        mixture = lambda w: f(w) * (share * norm.pdf(w, scale=slab) + (1 - share) * norm.pdf(w, scale=spike))  # noqa: E731
        return 2 * integral(mixture)

    threshold = float(density.threshold[0, 0])
    inside = share * (1 - 2 * norm.cdf(-threshold / slab)) + (1 - share) * (1 - 2 * norm.cdf(-threshold / spike))
    variance, fourth = mean(np.square), mean(lambda w: w**4)
    z_variance = (np.mean(w**2) - variance) / np.sqrt((fourth - variance**2) / w.size)
    z_inside = (np.mean(np.abs(w) < threshold) - inside) / np.sqrt(inside * (1 - inside) / w.size)
    worst = max(abs(z_variance), abs(z_inside))
    assert worst < limit if limit else worst > 10


def exact_slab_probabilities(Z, y, noise, slab, spike, share):
    """Return P(weight j in the slab | data) of a linear model without unknown noise: the sum over all 2^p settings."""
    n_rows, n_inputs = Z.shape
    design = np.column_stack([Z, np.ones(n_rows)])
    total, inside = 0.0, np.zeros(n_inputs)
    for setting in product([False, True], repeat=n_inputs):
        in_slab = np.array(setting)
        scales = np.append(np.where(in_slab, slab, spike), slab)  # the bias has the slab
        covariance = noise**2 * np.eye(n_rows) + (design * scales**2) @ design.T
        evidence = np.exp(multivariate_normal.logpdf(y, cov=covariance)) * np.where(in_slab, share, 1 - share).prod()
        total += evidence
        inside += evidence * in_slab
    return inside / total


def test_slab_probabilities_of_a_linear_model_equal_the_sum_over_all_settings():
    """The mean of P(slab | w) over 256 independent chains: |z| < 5 for each of 4 weights, two of which have no effect."""
    rng = np.random.RandomState(3)
    X, slab, spike, share, noise = rng.randn(30, 4), 1.0, 0.1, 0.4, 0.5
    y = 0.5 * X[:, 0] + 0.3 * X[:, 1] + noise * rng.randn(30)
    model = BayesianMLPRegressor((), prior=SpikeSlab(slab, spike, share), sampler="baoab", noise=noise, standardize=False)
    model.set_params(normalize_y=False, learning_rate=0.01, max_iter=2000, n_draws=40, n_chains=256, random_state=0).fit(X, y)
    of_chain = slab_share(model.draws_[..., :4].astype(np.float64), slab, spike, share).mean(axis=0)
    exact = exact_slab_probabilities(X, y, noise, slab, spike, share)
    assert exact.min() < 0.1 < 0.9 < exact.max()
    z = (of_chain.mean(axis=0) - exact) / (of_chain.std(axis=0, ddof=1) / 256**0.5)
    assert (np.abs(z) < 5).all(), z


@pytest.mark.parametrize(("scale", "fan_in"), [(0.7, False), ((0.3, 2.0), True)])
def test_weights_of_a_layer_have_a_multivariate_t_law_under_the_hierarchical_prior(scale, fan_in):
    theta = random_theta()
    density = HierarchicalNormal(scale, fan_in=fan_in, df=3.0).place(NETWORK.layout())
    layout, expected = NETWORK.layout(), np.zeros(len(theta))
    for layer in range(2):
        s = np.broadcast_to(scale, 2)[layer]
        weights = theta[:, (layout.layer == layer) & layout.is_weight].numpy()
        biases = theta[:, (layout.layer == layer) & ~layout.is_weight].numpy()
        of_weights = s / NETWORK.widths[layer] ** 0.5 if fan_in else s
        expected -= multivariate_t(shape=of_weights**2 * np.eye(weights.shape[1]), df=3.0).logpdf(weights)
        expected -= norm(0, s).logpdf(biases).sum(1)
    np.testing.assert_allclose(density.value(theta), expected, rtol=1e-12)


def test_hierarchical_prior_is_a_normal_whose_precision_has_a_gamma_law():
    """Integrate N(w; 0, s^2 / u) over u ~ Gamma(df / 2, rate df / 2) for the weights of a network without hidden layers."""
    network, df, s = MLP((2, 1), "relu"), 1.5, 0.7
    w = np.array([0.4, -1.1])
    theta = torch.tensor([[*w, 0.0]], dtype=torch.float64)

    def joint(u):
        return gamma(df / 2, scale=2 / df).pdf(u) * np.prod(norm(0, s / u**0.5).pdf(w))

    value = HierarchicalNormal(s, fan_in=False, df=df).place(network.layout()).value(theta)
    np.testing.assert_allclose(value, -np.log(quad(joint, 0, np.inf)[0]) - norm(0, s).logpdf(0.0), rtol=1e-7)


def test_hierarchical_prior_with_many_degrees_of_freedom_is_the_normal_one():
    theta = random_theta()
    many, normal = HierarchicalNormal(0.7, df=1e6).place(NETWORK.layout()), Normal(0.7, fan_in=True).place(NETWORK.layout())
    torch.testing.assert_close(many.value(theta), normal.value(theta), rtol=1e-3, atol=0)
    torch.testing.assert_close(many.grad(theta), normal.grad(theta), rtol=1e-3, atol=0)


@pytest.mark.parametrize("hidden", [(), (50,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("prior", [prior() for prior in (Normal, Laplace, StudentT, HierarchicalNormal, SpikeSlab)], ids=repr)
def test_no_bit_of_a_chain_depends_on_the_others(prior, dtype, hidden):
    network = MLP((36, *hidden, 7), "tanh")
    density = prior.place(network.layout())

    def of(theta):
        gradient = torch.zeros_like(theta)
        density.add_grad(gradient, theta)
        return [gradient, density.value(theta), density.hvp(theta, theta[:, None] + 1.0)]

    theta = random_theta(21, network.n_params, dtype)
    for start, stop in [(4, 5), (0, 2), (4, 7), (0, 4), (8, 13), (16, 21), (4, 12)]:
        for alone, together in zip(of(theta[start:stop]), of(theta), strict=True):
            torch.testing.assert_close(alone, together[start:stop], rtol=0, atol=0)
