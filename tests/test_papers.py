"""The scripts of the papers' experiments: each runs at a tiny budget, and their hand-written formulas are right."""

import importlib
import itertools
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from laws import covariance

from sklearn_sgmcmc.samplers import MSGLD, SGLD

mpl.use("Agg")
FOLDER = Path(__file__).parents[1] / "examples" / "papers"
QUICK = {
    "correlated_gaussian": "--steps 200 --chains 4",
    "ravines": "--rows 300 --steps 60 --tuning-starts 1 --starts 1",
    "sparse_mnist": "--rows 300 --test-rows 50 --hidden 8 --dense-epochs 1 --sparse-epochs 1 --runs 1",
    "resnet_cifar": "--width 1 --epochs 1 --made-up 64 --draws 1",
}
SLOW = {
    "five_modes": "--steps 200 --chains 4 --fit-steps 5",
    "landsat_table": "--epochs 1 --runs 2 --thin 30 --averaged 1",
    "nonreversible_mixture": "--steps-2 60 --steps-10 60 --trials-2 3 --trials-10 3 --reference-steps 40 --tracking-steps 60",
    "santa_mnist": "--rows 300 --test-rows 50 --hidden 8 --epochs 1 --runs 1",
}
PARTS = [pytest.param(name, id=name) for name in QUICK] + [pytest.param(name, id=name, marks=pytest.mark.slow) for name in SLOW]


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    """Let the scripts find their neighbours, as when they are run."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def digits(tmp_path):
    """Return the path of a file shaped like MNIST."""
    random = np.random.RandomState(0)
    parts = {f"x_{split}": random.randint(256, size=(n, 28, 28), dtype=np.uint8) for split, n in (("train", 300), ("test", 50))}
    parts |= {f"y_{split}": random.permutation(np.arange(n) % 10) for split, n in (("train", 300), ("test", 50))}
    np.savez(tmp_path / "digits.npz", **parts)
    return tmp_path / "digits.npz"


@pytest.mark.parametrize("name", PARTS)
def test_script_runs_and_saves_its_figure_and_a_rerun_computes_nothing(name, tmp_path, digits, capsys):
    options = [*(QUICK | SLOW)[name].split(), "--output", str(tmp_path)]
    options += ["--mnist", str(digits)] if "mnist" in name else []
    main = importlib.import_module(name).main
    main(options)
    assert (tmp_path / f"{name}.png").exists()
    first = capsys.readouterr().out
    main(options)
    second = capsys.readouterr().out
    assert "..." in first
    assert "..." not in second
    assert set(second.splitlines()) <= set(first.splitlines())


@pytest.mark.parametrize(
    ("method", "sampler"),
    [
        ("SGLD", SGLD()),
        ("MSGLD", MSGLD(bias_factor=0.1, smoothing=0.9)),
        ("MSGLD, recipe", MSGLD(bias_factor=0.1, smoothing=0.9, variant="recipe")),
    ],
)
def test_exact_covariance_of_the_correlated_gaussian_is_that_of_the_shipped_step(method, sampler):
    script = importlib.import_module("correlated_gaussian")
    precision = torch.tensor(np.linalg.inv(script.SIGMA))
    shipped = covariance(sampler, curvature=precision, step_size=0.1, temperature=1.0, gradient_variance=1.0)[:2, :2]
    assert np.allclose(script.exact_covariance(method, 0.1), shipped, rtol=1e-6)


@pytest.mark.parametrize("n", [2, 10])
def test_gradient_and_hessian_of_the_mixture_are_those_of_its_value(n):
    target = importlib.import_module("nonreversible_mixture").problem(n, 0)
    theta = torch.randn(3, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    vectors = torch.randn(3, 2, n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradient = torch.autograd.grad(target.value(theta).sum(), theta, create_graph=True)[0]
    assert torch.allclose(target.grad(theta), gradient)
    for k in range(2):
        product = torch.autograd.grad((gradient * vectors[:, k]).sum(), theta, retain_graph=True)[0]
        assert torch.allclose(target.hvp(theta, vectors)[:, k], product)


def test_gradient_of_the_ravine_is_that_of_its_value():
    script = importlib.import_module("ravines")
    x, y = script.data(50, 0)
    target = script.Ravine(50.0).bind((x.expand(3, -1), y.expand(3, -1)), None)
    theta = (5 * torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).requires_grad_()
    gradient = torch.autograd.grad(target.value(theta).sum(), theta)[0]
    assert torch.allclose(target.grad(theta.detach()), gradient)


def test_gradient_of_the_five_modes_is_that_of_the_potential():
    script = importlib.import_module("five_modes")
    theta = (3 * torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).requires_grad_()
    gradient = torch.autograd.grad(script.potential(theta).sum(), theta)[0]
    assert torch.allclose(script.gradient(theta.detach()), gradient)


def test_every_sampler_of_the_mixture_sees_all_observations_in_order():
    script = importlib.import_module("nonreversible_mixture")
    y = torch.arange(100.0)
    for sampler in script.METHODS.values():
        per_step = script.observations_per_step(sampler)
        stream = script.sweeps(y, per_step)
        assert [float(batch) for batch in itertools.islice(stream, 0, 100 * per_step, per_step)] == y.tolist()
