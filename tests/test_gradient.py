"""The hand-written gradient equals automatic differentiation."""

from functools import lru_cache

import numpy as np
import pytest
import torch

from sklearn_sgmcmc.batches import Batch
from sklearn_sgmcmc.likelihoods import Categorical, FixedNoise, HeteroscedasticNoise, HomoscedasticNoise
from sklearn_sgmcmc.network import ACTIVATIONS, MLP, with_constant
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import HierarchicalNormal, Laplace, Normal, SpikeSlab, StudentT

LIKELIHOODS = [Categorical(3), Categorical(1), FixedNoise((0.5, 2.0)), HomoscedasticNoise(2), HeteroscedasticNoise(2)]


PRIORS = [
    Normal((0.3, 2.0), fan_in=True),
    HierarchicalNormal((0.3, 2.0), df=0.7),
    Laplace((0.3, 2.0)),
    StudentT(0.7, fan_in=True),
    SpikeSlab((1.0, 2.0), 0.3),
]


def potential(activation, likelihood, hidden, n_chains=3, n_rows=7, dtype=torch.float64, prior=None):
    generator = torch.Generator().manual_seed(0)
    network = MLP((4, *hidden, likelihood.n_outputs), activation)
    posterior = Posterior(network, likelihood, prior or Normal(1.3), 20.0, 20.0)
    x = torch.randn(n_chains, n_rows, 4, generator=generator, dtype=dtype)
    if isinstance(likelihood, Categorical):
        labels = torch.randint(likelihood.n_classes, (n_chains, n_rows), generator=generator)
        target = torch.eye(likelihood.n_classes, dtype=dtype)[labels]
    else:
        target = torch.randn(n_chains, n_rows, 2, generator=generator, dtype=dtype)
    weight = torch.rand(n_chains, n_rows, generator=generator, dtype=dtype)
    theta = torch.randn(n_chains, posterior.n_params, generator=generator, dtype=dtype)
    return posterior.bind(Batch(with_constant(x), target, weight)), theta


@pytest.mark.parametrize("n_chains", [1, 3])
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda x: f"{type(x).__name__}{x.n_outputs}")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_equals_autograd(activation, likelihood, hidden, n_chains):
    bound, theta = potential(activation, likelihood, hidden, n_chains)
    reference = bound.autograd(theta)
    assert (bound.grad(theta) - reference).abs().max() <= 1e-10 * (1 + reference.abs().max())


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: type(prior).__name__)
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda x: f"{type(x).__name__}{x.n_outputs}")
def test_gradient_equals_autograd_with_every_prior(likelihood, prior):
    bound, theta = potential("tanh", likelihood, (5,), prior=prior)
    reference = bound.autograd(theta)
    assert (bound.grad(theta) - reference).abs().max() <= 1e-10 * (1 + reference.abs().max())


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: type(prior).__name__)
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda x: f"{type(x).__name__}{x.n_outputs}")
def test_hessian_product_equals_a_finite_difference(likelihood, prior):
    bound, theta = potential("tanh", likelihood, (5,), prior=prior)
    vector = torch.randn(theta.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    step = 1e-5
    difference = (bound.grad(theta + step * vector) - bound.grad(theta - step * vector)) / (2 * step)
    product = bound.hvp(theta, vector[:, None])[:, 0]
    assert (product - difference).abs().max() < 1e-7 * (1 + product.abs().max())


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda x: f"{type(x).__name__}{x.n_outputs}")
def test_several_hessian_products_are_one_by_one_the_same(likelihood):
    bound, theta = potential("tanh", likelihood, (5,))
    vectors = torch.randn(len(theta), 3, theta.shape[1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    one_by_one = torch.cat([bound.hvp(theta, vectors[:, k : k + 1]) for k in range(3)], dim=1)
    torch.testing.assert_close(bound.hvp(theta, vectors), one_by_one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda x: f"{type(x).__name__}{x.n_outputs}")
def test_fisher_information_of_the_network_is_the_weighted_sum_of_squared_gradients_of_single_rows(likelihood, hidden):
    bound, theta = potential("tanh", likelihood, hidden)
    bound = bound.posterior.bind(bound.batch)
    n_weights = bound.posterior.network.n_params
    total = torch.zeros(len(theta), n_weights, dtype=torch.float64)
    x, target, weight = bound.batch
    for row in range(x.shape[1]):
        one = torch.ones_like(weight[:, :1])
        alone = type(bound)(bound.posterior, Batch(x[:, row : row + 1], target[:, row : row + 1], one))
        nothing = type(bound)(bound.posterior, Batch(x[:, row : row + 1], target[:, row : row + 1], 0 * one))
        of_row = (alone.grad(theta) - nothing.grad(theta))[:, :n_weights]  # without the prior
        total += weight[:, row : row + 1] * of_row.square()
    torch.testing.assert_close(bound.fisher(theta)[:, :n_weights], total, rtol=1e-10, atol=1e-12)


def test_fisher_information_of_the_noise_level_is_its_mean_under_the_model():
    """E (d log N(y; f, sd) / ds)^2 over y ~ N(f, sd^2) by Gauss-Hermite quadrature."""
    likelihood, s = HomoscedasticNoise(1), torch.tensor([[0.3], [-1.2]], dtype=torch.float64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    outputs = torch.zeros(2, 1, 1, dtype=torch.float64)
    sd = likelihood.noise_sd(outputs, s)
    square = torch.zeros(2, 1, dtype=torch.float64)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        _, slope = likelihood.gradient(outputs, s, node * sd, torch.ones(2, 1, dtype=torch.float64))
        square += weight * slope.square()
    torch.testing.assert_close(likelihood.fisher(s, 3.0 * torch.ones(2, 1, dtype=torch.float64)), 3.0 * square)


def test_minibatch_gradient_is_unbiased_over_all_batches():
    """The mean over all pairs of rows is the full-data gradient: N/n stands once, and the prior is counted once."""
    rng = np.random.RandomState(0)
    x, target = torch.from_numpy(rng.randn(6, 2)), torch.from_numpy(rng.randn(6, 1))
    weight = torch.from_numpy(rng.rand(6) + 0.5)
    posterior = Posterior(MLP((2, 3, 1), "tanh"), FixedNoise((0.7,)), Normal(0.5), 6.0, float(weight.sum()))
    theta = torch.from_numpy(rng.randn(1, posterior.n_params))

    def grad(rows):
        return posterior.bind(Batch(with_constant(x[rows])[None], target[rows][None], weight[rows][None])).grad(theta)

    pairs = [grad([i, j]) for i in range(6) for j in range(i)]
    assert torch.allclose(torch.stack(pairs).mean(0), grad(list(range(6))), atol=1e-12)


HVP = 1
"""Its place among the numbers that are compared: with several vectors per chain a chain lies elsewhere in a larger batch."""


@lru_cache(maxsize=2)
def products_depend_on_the_place(dtype):
    """Return whether a matrix product's bits depend on its place in a batch, and so in memory: MKL's do on processors of AMD."""
    generator = torch.Generator().manual_seed(0)
    for inner, columns in ((31, 30), (30, 31)):
        a, b = (torch.randn(18, n, generator=generator, dtype=dtype) for n in (inner, 1173))
        for chosen in (slice(9, 13), slice(5, 13), slice(1, 17)):
            some, whole = (
                torch.bmm(left[:, None], right.as_strided((len(right), inner, columns), (1173, columns, 1)))
                for left, right in ((a[chosen].clone(), b[chosen].clone()), (a, b))
            )
            if not torch.equal(some, whole[chosen]):
                return True
    return False


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_rows", [1, 5, 64, 77])
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda x: f"{type(x).__name__}{x.n_outputs}")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_bits_of_a_chain_do_not_depend_on_its_company(activation, dtype, n_rows, likelihood):
    for hidden in ((), (1,), (30, 30), (50,)):
        bound, theta = potential(activation, likelihood, hidden, n_chains=9, n_rows=n_rows, dtype=dtype)
        vector = theta.flip(1)

        def numbers(part, bound=bound, theta=theta, vector=vector):
            some = type(bound)(bound.posterior, Batch(*(tensor[part] for tensor in bound.batch)))
            products = some.hvp(theta[part], torch.stack([vector[part], theta[part]], dim=1))
            return some.grad(theta[part]), products, some.value(theta[part]), some.fisher(theta[part])

        together = numbers(slice(0, 9))
        for part in (slice(0, 1), slice(0, 2), slice(0, 4), slice(4, 8), slice(8, 9)):
            for number, (alone, all_of_them) in enumerate(zip(numbers(part), together, strict=True)):
                if number == HVP and products_depend_on_the_place(dtype):
                    rounding = 100 * torch.finfo(dtype).eps * float(all_of_them.abs().max())
                    torch.testing.assert_close(alone, all_of_them[part], rtol=0, atol=rounding)
                else:
                    assert torch.equal(alone, all_of_them[part])
