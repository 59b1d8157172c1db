"""Compare the samplers at full batch with NUTS on the same posterior of a 10-unit net.

python -m benchmarks.nuts --data DIR [--sets yacht diabetes] [--samplers mala sgld ...] [--steps 400000] [--draws 2000] [--noise 0]

The model: tanh, N(0, 1) weights, learned Gaussian noise (or known, ``--noise`` standard deviations of y), and three quarters of a
set. NUTS is blackjax's, in float64, on a potential written anew in JAX and first compared with the package's. All marginals
are those of the network's mean at the rows left out, in standard deviations of NUTS's marginal of the row; the table has the ratio
of standard deviations (mean over rows, least and largest), the mean Wasserstein-1 distance, and R-hat between chains; the last row
is one half of NUTS's chains against the other.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import torch
from scipy.stats import wasserstein_distance
from sklearn.datasets import load_diabetes

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.batches import Batch
from sklearn_sgmcmc.diagnostics import r_hat
from sklearn_sgmcmc.estimators._base import BaseBayesianMLP
from sklearn_sgmcmc.likelihoods import HALF_LOG_2PI, LOG_NOISE_PRIOR_SCALE, NOISE_FLOOR, FixedNoise
from sklearn_sgmcmc.network import with_constant
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Normal
from sklearn_sgmcmc.samplers import BAOAB, MALA, MCLMC, MSGLD, SGHMC, SGLD, NonReversibleSGLD

jax.config.update("jax_enable_x64", True)

UNITS = 10
SAMPLERS: dict[str, tuple[Any, float]] = {
    "mala": (MALA(), 1.0),
    "sgld": (SGLD(), 0.2),
    "sghmc": (SGHMC(friction=0.05), 0.02),
    "baoab": (BAOAB(friction=0.05), 0.05),
    "nr_sgld": (NonReversibleSGLD(), 0.2),
    "mclmc": (MCLMC(energy_error=0.01), 1.0),
    "msgld recipe": (MSGLD(variant="recipe"), 0.2),
}
"""Each sampler, and its step as a share of the sampler's limit at the largest curvature along a trial run."""


def rows(name: str, folder: Path | None) -> tuple[Any, Any, Any]:
    """Return training inputs and targets, and inputs to predict, standardised by the training rows."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        if folder is None:
            raise SystemExit("This set needs --data DIR.")
        file = np.load(folder / f"uci_{name}.npz")
        X, y = file["X"], file["y"]
    order = np.random.RandomState(0).permutation(len(y))
    X, y = X[order], y[order]
    n = 3 * len(y) // 4
    X, y = (X - X[:n].mean(0)) / X[:n].std(0), (y - y[:n].mean()) / y[:n].std()
    return X[:n], y[:n], X[n:][:60]


def potential(X: Any, y: Any, noise: float) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Return U(theta) and f(theta, x) in JAX; theta is laid out as in the package."""
    d = X.shape[1]
    split = (d + 1) * UNITS

    def mean(theta: Any, x: Any) -> Any:
        first = theta[:split].reshape(d + 1, UNITS)
        last = theta[split : split + UNITS + 1]
        return jnp.tanh(x @ first[:-1] + first[-1]) @ last[:-1] + last[-1]

    def energy(theta: Any) -> Any:
        of_network = theta[: split + UNITS + 1]
        prior = (0.5 * of_network**2 + HALF_LOG_2PI).sum()
        sd = noise
        if not noise:
            s = theta[-1]
            sd = jnp.sqrt(jnp.exp(2 * s) + NOISE_FLOOR**2)
            prior += 0.5 * (s / LOG_NOISE_PRIOR_SCALE) ** 2 + np.log(LOG_NOISE_PRIOR_SCALE) + HALF_LOG_2PI
        return prior + (0.5 * ((y - mean(theta, X)) / sd) ** 2 + jnp.log(sd) + HALF_LOG_2PI).sum()

    return energy, mean


def nuts(energy: Callable[[Any], Any], starts: Any, n_warm_up: int, n_draws: int, thin: int) -> Any:
    """Return draws (S, C, P) and the largest number of leapfrog steps of a transition."""

    def log_density(theta: Any) -> Any:
        return -energy(theta)

    adaptation = blackjax.window_adaptation(blackjax.nuts, log_density, target_acceptance_rate=0.85)

    def one(key: Any, start: Any) -> Any:
        of_warm_up, of_run = jax.random.split(key)
        (state, tuned), _ = adaptation.run(of_warm_up, start, num_steps=n_warm_up)
        kernel = blackjax.nuts(log_density, **tuned)

        def step(state: Any, key: Any) -> Any:
            state, info = kernel.step(key, state)
            return state, (state.position, info.num_integration_steps, info.is_divergent)

        return jax.lax.scan(step, state, jax.random.split(of_run, n_draws * thin))[1]

    chains = jax.jit(lambda keys, starts: jax.lax.map(lambda both: one(*both), (keys, starts)))
    positions, leapfrogs, divergent = chains(jax.random.split(jax.random.key(0), len(starts)), starts)
    print(f"NUTS: {leapfrogs.mean():.0f} leapfrog steps per transition, {int(divergent.sum())} divergent transitions", flush=True)
    return np.asarray(positions)[:, ::thin].swapaxes(0, 1)


def predictions(mean: Callable[[Any, Any], Any], draws: Any, x: Any) -> Any:
    """Return f at the rows ``x`` for each draw, (S, C, n)."""
    of_draw = jax.vmap(jax.vmap(partial(mean, x=jnp.asarray(x))))
    return np.asarray(of_draw(jnp.asarray(draws, dtype=jnp.float64)))


def check_same_model(model: BaseBayesianMLP, energy: Callable[[Any], Any], X: Any, y: Any) -> None:
    """Raise AssertionError unless U in JAX is the package's."""
    posterior = Posterior(model._network, model._likelihood, Normal(), float(len(y)), float(len(y)))
    theta = torch.randn(5, posterior.n_params, dtype=torch.float64) * 0.3
    x, target, weight = torch.from_numpy(X)[None], torch.from_numpy(y)[None, :, None], torch.ones(1, len(y), dtype=torch.float64)
    batch = Batch(with_constant(x).expand(5, -1, -1), target.expand(5, -1, -1), weight.expand(5, -1))
    ours = posterior.bind(batch).value(theta).numpy()
    theirs = [float(energy(jnp.asarray(row))) for row in theta.numpy()]
    np.testing.assert_allclose(ours - ours[0], np.array(theirs) - theirs[0], rtol=1e-9, atol=1e-7)


def compare(name: str, folder: Path | None, options: argparse.Namespace) -> None:
    X, y, x_new = rows(name, folder)
    energy, mean = potential(X, y, options.noise)
    common = {
        "hidden_layer_sizes": (UNITS,), "activation": "tanh", "prior": "normal", "noise": options.noise or "homoscedastic",
        "standardize": False, "normalize_y": False, "batch_size": len(y), "n_chains": options.chains, "random_state": 0,
        "temperature": 1.0, "dtype": "float64",
    }  # fmt: skip
    start = BayesianMLPRegressor(sampler="adam", max_iter=2000, **{**common, "temperature": None}).fit(X, y)
    assert isinstance(start._likelihood, FixedNoise) == bool(options.noise)
    check_same_model(start, energy, X, y)
    begin = time.perf_counter()
    starts = jnp.asarray(start.draws_[-1][: options.nuts_chains], dtype=jnp.float64)
    draws = nuts(energy, starts, options.warm_up, options.draws, options.thin)
    reference = predictions(mean, draws, x_new)
    print(f"{name}: NUTS took {time.perf_counter() - begin:.0f} s")
    sd = reference.std(axis=(0, 1))
    print(f"\n### {name}, {len(y)} rows\n")
    print("| sampler | sd ratio | least | largest | W1 | R-hat | learning rate | s |\n|---|---|---|---|---|---|---|---|")

    def line(label: str, found: Any, against: Any, note: str, seconds: float) -> None:
        ratio = found.std(axis=(0, 1)) / against.std(axis=(0, 1))
        distance = [
            wasserstein_distance(found[..., row].ravel(), against[..., row].ravel()) / sd[row] for row in range(found.shape[2])
        ]
        worst = r_hat(found[..., ::6]).max()
        cells = f"{ratio.mean():.3f} | {ratio.min():.3f} | {ratio.max():.3f} | {np.mean(distance):.3f} | {worst:.3f}"
        print(f"| {label} | {cells} | {note} | {seconds:.0f} |", flush=True)

    for label in options.samplers:
        sampler, share = SAMPLERS[label]
        begin = time.perf_counter()
        rate = "auto" if label == "mclmc" else share * options.rate
        model = BayesianMLPRegressor(sampler=sampler, learning_rate=rate, max_iter=options.steps, n_draws=options.draws, **common)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.fit(X, y)
            except ValueError as error:
                print(f"| {label} | {error} |", flush=True)
                continue
        note = f"{np.mean(model.learning_rate_):.3g}"
        line(label, predictions(mean, model.draws_, x_new), reference, note, time.perf_counter() - begin)
    half = reference.shape[1] // 2
    line("NUTS, half against half", reference[:, :half], reference[:, half:], "", 0.0)
    print(f"NUTS R-hat: {r_hat(reference).max():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=["yacht", "diabetes"])
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=list(SAMPLERS))
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--draws", type=int, default=500, help="kept of each chain, of ours and of NUTS")
    parser.add_argument("--thin", type=int, default=4, help="NUTS transitions per kept draw")
    parser.add_argument("--warm-up", type=int, default=1000, help="NUTS transitions of its adaptation")
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--nuts-chains", type=int, default=8)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate that the shares of SAMPLERS refer to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.sets:
        compare(name, options.data, options)


if __name__ == "__main__":
    main()
