"""The compiled kernels: the same numbers as torch, bits that depend on nobody else, and torch wherever they cannot be had."""

import os
import pickle
import shutil

import numpy as np
import pytest
import torch

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc.batches import Batch, DenseRows
from sklearn_sgmcmc.kernels import _library, _moments, _network, _normals, _rows, _velocity
from sklearn_sgmcmc.likelihoods import Categorical, FixedNoise, HeteroscedasticNoise, HomoscedasticNoise
from sklearn_sgmcmc.network import ACTIVATIONS, MLP, with_constant
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.predictive import add_draws
from sklearn_sgmcmc.priors import HierarchicalNormal, Laplace, Normal
from sklearn_sgmcmc.samplers import microcanonical

HAS_COMPILER = any(shutil.which(name) for name in ("cc", "gcc", "clang")) and os.environ.get(kernels.SWITCH) != "0"
needs_kernel = pytest.mark.skipif(not HAS_COMPILER, reason="the machine has no C compiler, or may not use it")


@pytest.fixture
def anew(monkeypatch):
    """Let the kernel be looked for again, before and after a test, whatever the environment says of it."""
    monkeypatch.delenv(kernels.SWITCH, raising=False)

    def clear():
        for function in (
            kernels.status,
            kernels.network,
            kernels.normals,
            kernels.moments,
            kernels.scaled_rows,
            kernels.velocity,
            kernels._load_network,
        ):
            function.cache_clear()

    clear()
    yield
    clear()


LIKELIHOODS = [Categorical(3), FixedNoise((0.5, 2.0)), HomoscedasticNoise(2), HeteroscedasticNoise(2)]
named = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda likelihood: type(likelihood).__name__)


def bound(hidden, activation, dtype, likelihood, n_chains=3, n_rows=23, prior=None):
    generator = torch.Generator().manual_seed(0)
    posterior = Posterior(MLP((4, *hidden, likelihood.n_outputs), activation), likelihood, prior or Normal(), 100.0, 100.0)
    x = with_constant(torch.randn(n_chains, n_rows, 4, generator=generator, dtype=dtype))
    if isinstance(likelihood, Categorical):
        target = torch.eye(3, dtype=dtype)[torch.randint(3, (n_chains, n_rows), generator=generator)]
    else:
        target = torch.randn(n_chains, n_rows, 2, generator=generator, dtype=dtype)
    theta = 0.2 * torch.randn(n_chains, posterior.n_params, generator=generator, dtype=dtype)
    return posterior.bind(Batch(x, target, torch.rand(n_chains, n_rows, generator=generator, dtype=dtype))), theta


def by_torch(monkeypatch, potential, theta):
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "network", lambda dtype: None)
        fresh = potential.posterior.bind(potential.batch)
        fresh = type(fresh)(potential.posterior, potential.batch)
        return [fresh.grad(theta), fresh.value(theta)]


def assert_close(found, expected, dtype):
    tolerance = 2e-5 if dtype == torch.float32 else 1e-13
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * float(other.abs().max()))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", [(), (1,), (17,), (33, 5), (96, 64, 16)])
@named
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_and_value_equal_torchs(activation, likelihood, hidden, dtype, monkeypatch):
    potential, theta = bound(hidden, activation, dtype, likelihood)
    assert potential._kernel(theta) is not None
    assert_close([potential.grad(theta), potential.value(theta)], by_torch(monkeypatch, potential, theta), dtype)
    value, gradient = potential.value_and_grad(theta)
    assert torch.equal(gradient, potential.grad(theta))
    assert_close([value], [potential.value(theta)], dtype)


@needs_kernel
@pytest.mark.parametrize(
    "prior",
    [
        Normal(0.3),
        Normal((0.3, 2.0), fan_in=True),
        Normal(torch.tensor([[0.1], [1.0], [2.0]]).double()),
        HierarchicalNormal(),
        Laplace(),
    ],
    ids=["one scale", "per layer", "per chain", "hierarchical", "not normal"],
)
@pytest.mark.parametrize("likelihood", [Categorical(3), HomoscedasticNoise(2)], ids=["classes", "noise"])
def test_priors_are_counted_as_by_torch(likelihood, prior, monkeypatch):
    potential, theta = bound((6,), "tanh", torch.float64, likelihood, prior=prior)
    gradient, value = by_torch(monkeypatch, potential, theta)
    assert_close([potential.grad(theta), *potential.value_and_grad(theta)], [gradient, value, gradient], torch.float64)


@needs_kernel
@named
@pytest.mark.parametrize("n_rows", [1, 127, 128, 129, 300])
def test_rows_may_come_in_any_number(n_rows, likelihood, monkeypatch):
    potential, theta = bound((6, 5), "relu", torch.float64, likelihood, n_rows=n_rows)
    assert_close([potential.grad(theta), potential.value(theta)], by_torch(monkeypatch, potential, theta), torch.float64)


@needs_kernel
@pytest.mark.parametrize("hidden", [(), (6,)])
@pytest.mark.parametrize("integer", [torch.int32, torch.int64])
def test_rows_of_a_table_are_those_that_torch_gathers(integer, hidden):
    potential, theta = bound(hidden, "relu", torch.float32, Categorical(3))
    generator = torch.Generator().manual_seed(1)
    table = DenseRows(torch.randn(30, 4, generator=generator), torch.eye(3)[torch.arange(30) % 3], torch.ones(30))
    batch = pickle.loads(pickle.dumps(table)).take(torch.randint(30, (3, 23), generator=generator, dtype=integer))
    in_place = potential.posterior.bind(batch)
    assert torch.equal(in_place.grad(theta), type(in_place)(potential.posterior, Batch(*in_place.batch)).grad(theta))


@needs_kernel
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activations_hold_far_from_zero(activation, dtype, monkeypatch):
    potential, theta = bound((17,), activation, dtype, Categorical(3))
    for factor in (1e-4, 30.0, 1e4):
        assert_close([potential.grad(factor * theta)], by_torch(monkeypatch, potential, factor * theta)[:1], dtype)


@needs_kernel
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_unit_far_from_zero_is_torchs(activation, dtype):
    """Each chain has a row of its own, so that no large unit hides the error of a small one."""
    largest = float(torch.finfo(dtype).max) / 4
    z = torch.tensor([sign * size for sign in (-1, 1) for size in (1e-3, 3.0, 5.59, 9.0, 100.0, 1e6, 1e30, largest)], dtype=dtype)
    posterior = Posterior(MLP((1, 1, 1), activation), FixedNoise((1.0,)), Normal(1e6), 1.0, 1.0)
    theta = torch.stack([torch.zeros_like(z), z, torch.ones_like(z), torch.zeros_like(z)], dim=1)
    x, target = torch.tensor([0.0, 1.0], dtype=dtype).expand(len(z), 1, 2), torch.zeros(len(z), 1, 1, dtype=dtype)
    potential = posterior.bind(Batch(x, target, torch.ones(len(z), 1, dtype=dtype)))
    outputs, tape = posterior.network.forward(theta, x)
    tolerance = 2e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(posterior.network.outputs(theta, x), outputs, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(potential.grad(theta), potential._pull(theta, outputs, tape), rtol=tolerance, atol=tolerance)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_that_overflows_has_no_finite_value(dtype):
    posterior = Posterior(MLP((1, 2), "relu"), HeteroscedasticNoise(1), Normal(), 1.0, 1.0)
    largest = float(torch.finfo(dtype).max)
    theta = torch.tensor([[0.0, 0.0, largest**0.4, 0.0]], dtype=dtype)
    x = torch.tensor([[[largest**0.7, 1.0]]], dtype=dtype)
    value, _ = posterior.bind(Batch(x, x[..., 1:], x[..., 1])).value_and_grad(theta)
    assert not torch.isfinite(value)


@needs_kernel
@named
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_values_that_are_not_finite_stay_in_their_chain(bad, activation, likelihood):
    potential, theta = bound((17, 5), activation, torch.float32, likelihood)
    alone = potential.grad(theta)
    broken = theta.clone()
    broken[1, 3] = bad
    broken[1, -1] = torch.nan
    gradient = potential.grad(broken)
    assert not torch.isfinite(gradient[1]).all()
    assert torch.equal(gradient[[0, 2]], alone[[0, 2]])


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", [(), (7,), (160, 5)])
def test_outputs_do_not_depend_on_company(hidden, dtype):
    potential, theta = bound(hidden, "tanh", dtype, Categorical(3), n_rows=300)
    network, x = potential.posterior.network, potential.batch.x
    together = network.outputs(theta, x)
    for chain, rows in ((0, slice(1)), (1, slice(127, 300)), (2, slice(5, 133))):
        assert torch.equal(network.outputs(theta[chain, None], x[chain, None, rows])[0], together[chain, :, rows])
    shared = x[:1].expand(3, -1, -1)
    assert torch.equal(network.outputs(theta, shared), network.outputs(theta, shared.clone()))


@needs_kernel
@pytest.mark.parametrize("n_rows", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_class_probabilities_are_torchs(n_classes, n_rows):
    outputs = torch.randn(3, n_classes, n_rows, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for scale in (1.0, 50.0, 1e300):
        torch.testing.assert_close(
            Categorical(n_classes).mean(scale * outputs), (scale * outputs).softmax(1), rtol=1e-14, atol=1e-300
        )
    outputs[1, 0, 0] = torch.nan
    assert Categorical(n_classes).mean(outputs).isnan().nonzero().tolist() == [[1, k, 0] for k in range(n_classes)]


@needs_kernel
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 16)])
def test_averages_over_draws_do_not_depend_on_how_they_arrive(shape, monkeypatch):
    values = 1e3 + torch.randn(30, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def averaged(sizes):
        count, (mean, squares) = 0, torch.zeros(2, *shape, dtype=torch.float64)
        for part in values.split(sizes):
            add_draws(count, part, mean, squares)
            count += len(part)
        return torch.stack([mean, squares / count])

    expected = torch.stack([values.mean(0), values.var(0, correction=0)])
    once = averaged([30])
    torch.testing.assert_close(once, expected, rtol=1e-11, atol=0)
    assert torch.equal(averaged([1, 12, 17]), once)
    monkeypatch.setattr(kernels, "moments", lambda: None)
    torch.testing.assert_close(averaged([1, 12, 17]), expected, rtol=1e-11, atol=0)


def unit_velocities(dtype, n_params):
    generator = torch.Generator().manual_seed(n_params)
    u, gradient = torch.randn(2, 12, n_params, generator=generator, dtype=torch.float64)
    gradient *= torch.logspace(-30, 30, 12, dtype=torch.float64)[:, None]
    gradient[0] = 0.0
    return (
        torch.nn.functional.normalize(u).to(dtype),
        gradient.to(dtype),
        torch.rand(12, 1, generator=generator, dtype=torch.float64),
    )


@needs_kernel
@pytest.mark.parametrize("n_params", [2, 16, 33, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kick_is_torchs_and_depends_on_its_own_chain(dtype, n_params, monkeypatch):
    u, gradient, time = unit_velocities(dtype, n_params)
    found = microcanonical.kick(u, gradient, time, 0.3)
    for own, whole in zip(microcanonical.kick(u[7:8], gradient[7:8], time[7:8], 0.3), found, strict=True):
        assert torch.equal(own, whole[7:8])
    apart = gradient.mT.contiguous().mT
    assert torch.equal(microcanonical.kick(u, apart, time, 0.3)[0], found[0])
    unit = microcanonical._unit(3 * u)
    monkeypatch.setattr(kernels, "velocity", lambda dtype: None)
    expected = microcanonical.kick(u.double(), gradient.double(), time, 0.3)
    atol = 10 * torch.finfo(dtype).eps
    torch.testing.assert_close(found[0].double(), expected[0], rtol=0, atol=atol)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(unit, microcanonical._unit(3 * u), rtol=0, atol=atol)


@needs_kernel
def test_a_kick_is_nan_where_the_gradient_is_and_nowhere_else():
    u, gradient, time = unit_velocities(torch.float32, 5)
    gradient[3, 4] = torch.nan
    velocity, change = microcanonical.kick(u, gradient, time, 1.0)
    assert velocity.isfinite().all(dim=1).tolist() == change[:, 0].isfinite().tolist() == [chain != 3 for chain in range(12)]


@needs_kernel
@pytest.mark.parametrize("prior", [HierarchicalNormal(), HierarchicalNormal((0.3, 2.0), df=0.7, fan_in=False)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_hierarchical_prior_is_torchs_and_depends_on_its_own_chain(dtype, prior, monkeypatch):
    density = prior.place(MLP((4, 7, 3), "relu").layout())
    theta = torch.randn(3, 59, generator=torch.Generator().manual_seed(0), dtype=dtype)
    found = density.value_and_precision(theta)
    for own, whole in zip(density.value_and_precision(theta[1:2]), found, strict=True):
        assert torch.equal(own, whole[1:2])
    with pytest.raises(ValueError, match="3 chains of parameters do not fit the laws of 2"):
        kernels.network(dtype).hierarchical(theta, density._starts, density._of_run, density._laws.expand(2, -1))
    monkeypatch.setattr(kernels, "network", lambda dtype: None)
    for one, other in zip(found, density.value_and_precision(theta), strict=True):
        torch.testing.assert_close(one, other, rtol=4 * torch.finfo(one.dtype).eps, atol=0)


def test_wide_layers_and_automatic_differentiation_are_left_to_torch():
    wide, theta = bound((_network.LARGEST_BLOCK,), "relu", torch.float32, Categorical(3), n_rows=1)
    assert wide._kernel(theta) is None
    assert wide.posterior.network._compiled is None
    potential, theta = bound((5,), "relu", torch.float32, Categorical(3))
    assert potential._kernel(theta.requires_grad_()) is None


@needs_kernel
def test_rows_that_do_not_fit_are_refused():
    potential, theta = bound((5,), "relu", torch.float32, Categorical(3))
    for other in (theta[:2], theta.double()):
        with pytest.raises(ValueError, match="do not fit rows"):
            potential.grad(other)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_numbers_are_those_of_the_published_generator(dtype):
    seed = np.random.SeedSequence(3).generate_state(_normals.WORDS, np.uint64)
    generator, n = kernels.NormalGenerator(seed), 128 // dtype.itemsize
    found = torch.empty(1000 * n, dtype=dtype)
    kernels.normals().fill(found, len(found), kernels.Normals.addresses([generator]))
    words = _normals.xoshiro(seed, 2000).reshape(1000, 2, 8)
    expected = np.concatenate([_normals.box_muller(two, dtype) for two in words])
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=2e-6 if dtype == torch.float32 else 1e-14)


def test_the_reference_generator_gives_the_published_numbers():
    """From the state 1, 2, 3, 4 the first word is rotl(1 + 4, 23) + 1; the second follows by hand."""
    state = np.repeat(np.array([1, 2, 3, 4], dtype=np.uint64), 8)
    words = _normals.xoshiro(state, 2)
    assert words[0].tolist() == [41943041] * 8
    s0, s3 = 1 ^ 4 ^ 2, (4 ^ 2) << 45
    assert words[1].tolist() == [((s0 + s3) << 23 & 2**64 - 1 | (s0 + s3) >> 41) + s0] * 8


def test_without_a_compiler_torch_computes(anew, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert kernels.network(torch.float32) is None
    assert "no C compiler was found" in kernels.status()
    potential, theta = bound((5,), "tanh", torch.float64, Categorical(3))
    torch.testing.assert_close(potential.grad(theta), potential.autograd(theta))


def test_a_compiler_that_fails_is_no_error(anew, monkeypatch, tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernels.network(torch.float32) is None
    assert "no kernel could be compiled" in kernels.status()


@needs_kernel
def test_a_damaged_library_is_compiled_anew(anew, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = _library.library("velocity", "float")
    library.write_bytes(b"")
    assert kernels.velocity(torch.float32) is not None
    assert library.stat().st_size > 0


@needs_kernel
def test_a_user_without_a_home_gets_libraries_for_this_process(anew, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_library.Path, "home", no_home)
    assert kernels.velocity(torch.float32) is not None


@needs_kernel
def test_kernels_stay_on_the_cpu_whatever_the_default_device(anew):
    u, gradient, time = unit_velocities(torch.float32, 5)
    with torch.device("meta"):
        assert kernels.velocity(torch.float32) is not None
        assert kernels.network(torch.float32) is not None
        velocity, change = kernels.velocity(torch.float32).kick(u, gradient, time)
    assert velocity.device.type == change.device.type == "cpu"


@needs_kernel
def test_a_cache_that_cannot_be_written_is_no_error(anew, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert kernels.network(torch.float32) is not None


@needs_kernel
def test_a_kernel_that_computes_something_else_is_not_used(anew, monkeypatch):
    monkeypatch.setattr(_network, "agrees", lambda kernel, dtype: False)
    monkeypatch.setattr(_normals, "agrees", lambda normals: False)
    monkeypatch.setattr(_moments, "agrees", lambda moments: False)
    monkeypatch.setattr(_rows, "agrees", lambda rows: False)
    monkeypatch.setattr(_velocity, "agrees", lambda velocity, dtype: False)
    assert kernels.network(torch.float64) is None
    assert kernels.normals() is None
    assert kernels.moments() is None
    assert kernels.scaled_rows() is None
    assert kernels.velocity(torch.float64) is None


@pytest.mark.parametrize("switch", ["0", "1"])
def test_the_switch_is_obeyed(switch, anew, monkeypatch):
    monkeypatch.setenv(kernels.SWITCH, switch)
    assert (f"{kernels.SWITCH}=0" in kernels.status()) == (switch == "0")
    if switch == "0":
        assert kernels.network(torch.float32) is kernels.network(torch.float64) is kernels.normals() is None
