"""The compiled kernel: the same numbers as torch, bits that depend on nobody else, and torch wherever it cannot be had."""

import os
import shutil
import subprocess
import sys

import pytest
import torch

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc.batches import Batch
from sklearn_sgmcmc.likelihoods import Categorical, HomoscedasticNoise
from sklearn_sgmcmc.network import ACTIVATIONS, MLP, WIDEST_COMPILED, with_constant
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Normal

HAS_COMPILER = any(shutil.which(name) for name in ("cc", "gcc", "clang"))
needs_kernel = pytest.mark.skipif(not HAS_COMPILER, reason="the machine has no C compiler")


@pytest.fixture
def anew():
    """Let the kernel be looked for again, before and after a test."""

    def clear():
        for function in (kernels.status, kernels.affine, kernels._load):
            function.cache_clear()

    clear()
    yield
    clear()


def bound(hidden, activation, dtype, likelihood, n_chains=3, n_rows=23):
    generator = torch.Generator().manual_seed(0)
    posterior = Posterior(MLP((4, *hidden, likelihood.n_outputs), activation), likelihood, Normal(), 100.0, 100.0)
    x = with_constant(torch.randn(n_chains, n_rows, 4, generator=generator, dtype=dtype))
    target = torch.eye(likelihood.n_outputs, dtype=dtype)[
        torch.randint(likelihood.n_outputs, (n_chains, n_rows), generator=generator)
    ]
    theta = torch.randn(n_chains, posterior.n_params, generator=generator, dtype=dtype)
    return posterior.bind(Batch(x, target, torch.ones(n_chains, n_rows, dtype=dtype))), theta


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", [(), (1,), (17,), (33, 5), (96, 64)])
@pytest.mark.parametrize("likelihood", [Categorical(3), HomoscedasticNoise(2)], ids=["classes", "noise"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_value_and_fisher_information_equal_torchs(activation, likelihood, hidden, dtype, monkeypatch):
    potential, theta = bound(hidden, activation, dtype, likelihood)
    assert potential.posterior.network._kernel(theta, potential.batch.x) is not None
    compiled = [potential.grad(theta), potential.value(theta), potential.fisher(theta)]
    monkeypatch.setattr(kernels, "affine", lambda dtype: None)
    by_torch = [potential.grad(theta), potential.value(theta), potential.fisher(theta)]
    tolerance = 2e-5 if dtype == torch.float32 else 1e-13
    for one, other in zip(compiled, by_torch, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * float(other.abs().max()))


@needs_kernel
def test_values_that_are_not_finite_stay_in_their_chain():
    potential, theta = bound((17, 5), "relu", torch.float32, Categorical(3))
    alone = potential.grad(theta)
    broken = theta.clone()
    broken[1, 3] = torch.nan
    gradient = potential.grad(broken)
    assert not torch.isfinite(gradient[1]).all()
    assert torch.equal(gradient[[0, 2]], alone[[0, 2]])


def test_wide_layers_and_automatic_differentiation_are_left_to_torch():
    potential, theta = bound((WIDEST_COMPILED + 1,), "relu", torch.float32, Categorical(3))
    assert potential.posterior.network._kernel(theta, potential.batch.x) is None
    potential, theta = bound((5,), "relu", torch.float32, Categorical(3))
    assert potential.posterior.network._kernel(theta.requires_grad_(), potential.batch.x) is None


def test_without_a_compiler_torch_computes(anew, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert kernels.affine(torch.float32) is None
    assert "no C compiler was found" in kernels.status()
    potential, theta = bound((5,), "tanh", torch.float64, Categorical(3))
    torch.testing.assert_close(potential.grad(theta), potential.autograd(theta))


def test_a_compiler_that_fails_is_no_error(anew, monkeypatch, tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernels.affine(torch.float32) is None
    assert "no kernel could be compiled" in kernels.status()


@needs_kernel
def test_a_damaged_library_is_no_error(anew, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = kernels._library("float")
    library.write_bytes(b"not a library")
    assert kernels.affine(torch.float32) is None
    assert "torch computes" in kernels.status()


@needs_kernel
def test_a_cache_that_cannot_be_written_is_no_error(anew, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert kernels.affine(torch.float32) is not None


@needs_kernel
def test_a_kernel_that_computes_something_else_is_not_used(anew, monkeypatch):
    monkeypatch.setattr(kernels, "_agrees", lambda kernel, dtype: False)
    assert kernels.affine(torch.float64) is None


@pytest.mark.parametrize("switch", ["0", "1"])
def test_the_switch_is_obeyed(switch):
    code = "from sklearn_sgmcmc import kernels; print(kernels.status())"
    out = subprocess.run([sys.executable, "-c", code], env={**os.environ, kernels.SWITCH: switch}, capture_output=True, text=True)
    assert (f"{kernels.SWITCH}=0" in out.stdout) == (switch == "0")
