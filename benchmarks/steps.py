"""Time one gradient step of one chain against JAX, other libraries and the floor of the machine, in one interleaved run.

taskset -c 0 python -m benchmarks.steps [--nets A B C] [--chains 1 4 16] [--samplers msgld sgld sghmc] [--repeats 7]

Needs the extra "bench". Every method takes its own minibatch for every chain and makes the same update in float32. The floor is the
arithmetic of forward and backward pass at the rate of a large matrix product, plus torch's normal numbers, plus one pass over the
parameters.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from sklearn_sgmcmc.batches import Batch, Batches, DenseRows, RowSet
from sklearn_sgmcmc.engine import Stage, run
from sklearn_sgmcmc.likelihoods import Categorical, FixedNoise
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.noise import BLOCK, BlockNoise, noise_generators, row_generators
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Normal
from sklearn_sgmcmc.samplers import SAMPLERS
from sklearn_sgmcmc.schedules import Constant

ROWS = 4435
"""Training rows: as many as Landsat has."""
LEARNING_RATE = 0.03
A, B, FRICTION = 1.0, 0.9, 0.2
"""Bias factor and smoothing of MSGLD, friction of SGHMC: the defaults."""


class Net(NamedTuple):
    """A network, its minibatch and whether it classifies (else Gaussian noise of standard deviation 1)."""

    widths: tuple[int, ...]
    n: int
    classify: bool


NETS = {
    "A": Net((36, 30, 30, 6), 50, True),
    "B": Net((13, 50, 1), 32, False),
    "C": Net((64, 128, 128, 10), 128, True),
}


def data(net: Net) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (N, d) and one-hot or real targets (N, K), float32."""
    rng = np.random.RandomState(0)
    X = rng.randn(ROWS, net.widths[0]).astype(np.float32)
    if net.classify:
        return X, np.eye(net.widths[-1], dtype=np.float32)[rng.randint(net.widths[-1], size=ROWS)]
    return X, rng.randn(ROWS, 1).astype(np.float32)


class EnoughError(Exception):
    """Ends a run after the steps that are timed."""


class Counted:
    """Minibatches that end the run after a number of steps, so that the looks at it lie as far apart as in a long run."""

    def __init__(self, batches: Batches, n_steps: int) -> None:
        self.batches, self.left = batches, n_steps

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self.left == 0:
            raise EnoughError
        self.left -= 1
        return next(self.batches)


def ours(net: Net, chains: int, sampler: str) -> Callable[[int], None]:
    """Return a function that makes so many steps with the engine, as an estimator does."""
    X, Y = data(net)
    likelihood = Categorical(net.widths[-1]) if net.classify else FixedNoise((1.0,))
    posterior = Posterior(MLP(net.widths, "relu"), likelihood, Normal(), float(ROWS), float(ROWS))
    source = DenseRows(torch.from_numpy(X), torch.from_numpy(Y), torch.ones(ROWS))
    timeline = Constant().timeline(n_steps=50_000, steps_per_epoch=ROWS / net.n, burn_in=0.5, n_draws=1)
    stage = Stage(SAMPLERS[sampler](), timeline, posterior, LEARNING_RATE / ROWS, 1.0)
    theta = torch.randn(chains, posterior.n_params) * 0.1
    noise = BlockNoise(noise_generators([0], range(-(-chains // BLOCK)), torch.device("cpu")))
    batches = Batches(source, [RowSet(0, ROWS)] * chains, net.n, row_generators([0], range(chains), torch.device("cpu")))

    def go(n_steps: int) -> None:
        with contextlib.suppress(EnoughError):
            run([stage], theta, Counted(batches, n_steps), noise)

    return go


def start_in_jax(net: Net, chains: int) -> Any:
    """Return the layers' weights and biases, chains first."""
    import jax.numpy as jnp

    rng = np.random.RandomState(0)
    return [
        (jnp.asarray(0.1 * rng.randn(chains, i, o), jnp.float32), jnp.zeros((chains, o), jnp.float32))
        for i, o in pairwise(net.widths)
    ]


def log_likelihood_in_jax(net: Net, theta: Any, x: Any, y: Any) -> Any:
    """Return the log-likelihood of one chain on a minibatch, but for a constant."""
    import jax
    import jax.numpy as jnp

    h = x
    for number, (w, b) in enumerate(theta):
        h = h @ w + b
        h = jnp.maximum(h, 0.0) if number < len(theta) - 1 else h
    return (jax.nn.log_softmax(h) * y).sum() if net.classify else -0.5 * ((h - y) ** 2).sum()


def log_prior_in_jax(theta: Any) -> Any:
    """Return the log prior of one chain, but for a constant."""
    return -0.5 * sum((part**2).sum() for layer in theta for part in layer)


def gradient_by_hand(net: Net, theta: Any, x: Any, y: Any) -> Any:
    """Return the gradient of all chains' potentials by backpropagation written out."""
    import jax
    import jax.numpy as jnp

    hidden = [x]
    for w, b in theta[:-1]:
        hidden.append(jnp.maximum(hidden[-1] @ w + b[:, None], 0.0))
    out = hidden[-1] @ theta[-1][0] + theta[-1][1][:, None]
    delta = ((jax.nn.softmax(out) if net.classify else out) - y) * (ROWS / net.n)
    gradient = []
    for number in range(len(theta) - 1, -1, -1):
        w, b = theta[number]
        gradient.append((hidden[number].swapaxes(1, 2) @ delta + w, delta.sum(1) + b))
        if number:
            delta = jnp.where(hidden[number] > 0, delta @ w.swapaxes(1, 2), 0.0)
    return gradient[::-1]


def in_jax(net: Net, chains: int, sampler: str, *, by_hand: bool) -> Callable[[int], None]:
    """Return a function that makes so many steps in one compiled ``lax.scan``, gradients by ``vmap(grad)`` or written by hand."""
    import jax
    import jax.numpy as jnp

    X, Y = map(jnp.asarray, data(net))

    def loss(theta: Any, x: Any, y: Any) -> Any:
        return -log_likelihood_in_jax(net, theta, x, y) * (ROWS / net.n) - log_prior_in_jax(theta)

    gradients = partial(gradient_by_hand, net) if by_hand else jax.vmap(jax.grad(loss))
    eps = LEARNING_RATE / ROWS
    each = jax.tree_util.tree_map

    def step(carry: Any, key: Any) -> Any:
        theta, m = carry
        for_rows, for_noise = jax.random.split(key)
        index = jax.random.randint(for_rows, (chains, net.n), 0, ROWS)
        g = gradients(theta, X[index], Y[index])
        leaves, tree = jax.tree_util.tree_flatten(theta)
        keys = jax.random.split(for_noise, len(leaves))
        z = jax.tree_util.tree_unflatten(
            tree, [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
        )
        if sampler == "sghmc":
            m = each(lambda m, g, z: (1 - FRICTION) * m - eps * g + (2 * FRICTION * eps) ** 0.5 * z, m, g, z)
            return (each(jnp.add, theta, m), m), None
        if sampler == "sgld":
            return (each(lambda t, g, z: t - eps * g + (2 * eps) ** 0.5 * z, theta, g, z), m), None
        theta = each(lambda t, g, m, z: t - eps * (g + A * m) + (2 * eps) ** 0.5 * z, theta, g, m, z)
        return (theta, each(lambda m, g: B * m + (1 - B) * g, m, g)), None

    @partial(jax.jit, static_argnums=2)
    def scan(carry: Any, key: Any, n_steps: int) -> Any:
        return jax.lax.scan(step, carry, jax.random.split(key, n_steps))[0]

    theta = start_in_jax(net, chains)
    carry = (theta, each(jnp.zeros_like, theta))

    def go(n_steps: int) -> None:
        jax.block_until_ready(scan(carry, jax.random.PRNGKey(1), n_steps))

    return go


def autograd_loop(net: Net, chains: int, sampler: str) -> Callable[[int], None]:
    """Return a function that steps chain after chain with torch's automatic differentiation, as most torch code does."""
    X, Y = map(torch.from_numpy, data(net))
    layers: list[torch.nn.Module] = []
    for i, o in pairwise(net.widths):
        layers += [torch.nn.Linear(i, o), torch.nn.ReLU()]
    nets = [torch.nn.Sequential(*layers[:-1]) for _ in range(chains)]
    eps = LEARNING_RATE / ROWS

    def go(n_steps: int) -> None:
        for module in nets:
            parameters = list(module.parameters())
            momenta = [torch.zeros_like(p) for p in parameters]
            for _ in range(n_steps):
                index = torch.randint(ROWS, (net.n,))
                out = module(X[index])
                of_rows = -(out.log_softmax(1) * Y[index]) if net.classify else 0.5 * (out - Y[index]).square()
                value = of_rows.sum() * (ROWS / net.n) + 0.5 * sum(p.square().sum() for p in parameters)
                gradient = torch.autograd.grad(value, parameters)
                with torch.no_grad():
                    for p, g, m in zip(parameters, gradient, momenta, strict=True):
                        if sampler == "sghmc":
                            m.mul_(1 - FRICTION).sub_(g, alpha=eps).add_(torch.randn_like(p), alpha=(2 * FRICTION * eps) ** 0.5)
                            p.add_(m)
                            continue
                        p.sub_(g, alpha=eps).add_(torch.randn_like(p), alpha=(2 * eps) ** 0.5)
                        if sampler == "msgld":
                            p.sub_(m, alpha=eps * A)
                            m.mul_(B).add_(g, alpha=1 - B)

    return go


def in_sgmcmcjax(net: Net, chains: int, sampler: str) -> Callable[[int], None]:
    """Return a function that makes so many steps of SGMCMCJax's SGLD or SGHMC kernel, chains by ``vmap``."""
    import jax
    import jax.numpy as jnp
    from sgmcmcjax.kernels import build_sghmc_kernel, build_sgld_kernel

    X, Y = map(jnp.asarray, data(net))
    eps = LEARNING_RATE / ROWS
    build = partial(build_sghmc_kernel, L=1, alpha=FRICTION) if sampler == "sghmc" else build_sgld_kernel
    init, kernel, _ = build(eps, partial(log_likelihood_in_jax, net), log_prior_in_jax, (X, Y), net.n)
    theta = start_in_jax(net, chains)

    @partial(jax.jit, static_argnums=1)
    def scan(key: Any, n_steps: int) -> Any:
        def one(theta: Any, key: Any) -> Any:
            first, rest = jax.random.split(key)

            def body(state: Any, inputs: Any) -> Any:
                number, key = inputs
                return kernel(number, key, state), None

            return jax.lax.scan(body, init(first, theta), (jnp.arange(n_steps), jax.random.split(rest, n_steps)))[0]

        return jax.vmap(one)(theta, jax.random.split(key, chains))

    def go(n_steps: int) -> None:
        jax.block_until_ready(scan(jax.random.PRNGKey(1), n_steps))

    return go


def in_posteriors(net: Net, chains: int, sampler: str) -> Callable[[int], None]:
    """Return a function that makes so many steps of posteriors' SGLD or SGHMC, chains by ``torch.func.vmap`` where it can."""
    import posteriors
    import torchopt  # noqa: F401  # its dependency: a clear failure if it is missing

    X, Y = map(torch.from_numpy, data(net))

    def log_posterior(theta: Any, batch: Any) -> Any:
        x, y = batch
        h = x
        for number, (w, b) in enumerate(theta):
            h = h @ w + b
            h = torch.relu(h) if number < len(theta) - 1 else h
        of_rows = (h.log_softmax(1) * y) if net.classify else -0.5 * (h - y).square()
        prior = -0.5 * sum(part.square().sum() for layer in theta for part in layer)
        return of_rows.sum() * (ROWS / net.n) + prior, torch.zeros(())

    eps = LEARNING_RATE / ROWS
    transform = (
        posteriors.sgmcmc.sghmc.build(log_posterior, lr=eps**0.5, alpha=FRICTION / eps**0.5)
        if sampler == "sghmc"
        else posteriors.sgmcmc.sgld.build(log_posterior, lr=eps)
    )
    rng = np.random.RandomState(0)
    starts = [
        tuple((torch.tensor(0.1 * rng.randn(i, o), dtype=torch.float32), torch.zeros(o)) for i, o in pairwise(net.widths))
        for _ in range(chains)
    ]

    def go(n_steps: int) -> None:
        for theta in starts:
            state = transform.init(theta)
            for _ in range(n_steps):
                index = torch.randint(ROWS, (net.n,))
                state = transform.update(state, (X[index], Y[index]), inplace=False)[0]

    return go


def floor(net: Net, chains: int) -> float:
    """Return the floor in microseconds per chain-step, measured now."""
    big = torch.randn(1024, 1024)
    many = torch.empty(1 << 20)
    n_params = sum((i + 1) * o for i, o in pairwise(net.widths))
    passed = torch.randn(max(chains, 64), n_params)
    out = torch.empty_like(passed)
    gemm = best(lambda: torch.mm(big, big)) / (2 * 1024**3)
    normal = best(lambda: many.normal_()) / many.numel()
    one_pass = best(lambda: torch.add(passed, passed, out=out)) / len(passed)
    products = sum(2 * 3 * net.n * (i + 1) * o for i, o in pairwise(net.widths)) - 2 * net.n * (net.widths[0] + 1) * net.widths[1]
    return 1e6 * (gemm * products + normal * n_params + one_pass)


def best(call: Callable[[], Any], repeats: int = 5) -> float:
    """Return the median seconds of a call."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


METHODS: dict[str, Callable[[Net, int, str], Callable[[int], None]]] = {
    "ours": ours,
    "JAX vmap(grad)": partial(in_jax, by_hand=False),
    "JAX by hand": partial(in_jax, by_hand=True),
    "torch loop": autograd_loop,
    "SGMCMCJax": in_sgmcmcjax,
    "posteriors": in_posteriors,
}
SLOW = ("torch loop", "posteriors")
WITHOUT = {"SGMCMCJax": ("msgld",), "posteriors": ("msgld",)}
"""Samplers that a library does not have."""


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nets", nargs="+", default=["A", "B", "C"], choices=list(NETS))
    parser.add_argument("--chains", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--samplers", nargs="+", default=["msgld"], choices=["msgld", "sgld", "sghmc"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="time of one repeat")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| net | chains | sampler | floor | {' | '.join(arguments.methods)} | share of floor |")
    print("|---|---|---|---|" + "---|" * (len(arguments.methods) + 1))
    for name in arguments.nets:
        for chains in arguments.chains:
            for sampler in arguments.samplers:
                print(row(name, chains, sampler, arguments.methods, arguments.repeats, arguments.seconds), flush=True)


def row(name: str, chains: int, sampler: str, methods: list[str], repeats: int, seconds: float) -> str:
    """Return one line of the table: median microseconds per chain-step, and in brackets how many times ours they are."""
    net = NETS[name]
    found = {method: METHODS[method](net, chains, sampler) for method in methods if sampler not in WITHOUT.get(method, ())}
    steps = {}
    for method, go in found.items():
        guess = 2 if method in SLOW else 50
        go(guess)
        go(guess)
        start = time.perf_counter()
        go(guess)
        steps[method] = max(2, int(guess * seconds / (time.perf_counter() - start)))
        go(steps[method])
    times: dict[str, list[float]] = {method: [] for method in found}
    floors = []
    for _ in range(repeats):
        for method, go in found.items():
            start = time.perf_counter()
            go(steps[method])
            times[method].append((time.perf_counter() - start) / steps[method] / chains * 1e6)
        floors.append(floor(net, chains))
    medians = {method: float(np.median(values)) for method, values in times.items()}
    own = medians.get("ours", np.nan)
    cells = [
        "-" if method not in medians else f"{medians[method]:.1f}" + ("" if method == "ours" else f" ({medians[method] / own:.2f})")
        for method in methods
    ]
    at_best = float(np.median(floors))
    return f"| {name} | {chains} | {sampler} | {at_best:.1f} | {' | '.join(cells)} | {at_best / own:.2f} |"


if __name__ == "__main__":
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    main()
