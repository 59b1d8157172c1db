"""
A correlated Gaussian: when two errors cancel
=============================================

The first experiment of Kim, Song & Liang 2020: sample N(0, [[1, 0.9], [0.9, 1]]) from gradients with N(0, I) noise at temperature 1
and step size 0.1, and look at the mean absolute error of the sample covariance. SGLD, MSGLD and ASGLD have bias factor 0.1. Each
law has a floor that no number of iterations removes, known exactly for SGLD and MSGLD, and in mean field for ASGLD. A second table
has the floors at smaller steps.
"""

# %%
# The target, and the exact floors
# --------------------------------
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Cells, parse, style, table
from scipy.optimize import brentq

from sklearn_sgmcmc.samplers import ASGLD, MSGLD, SGLD
from sklearn_sgmcmc.sampling import sample


@dataclass(frozen=True)
class Budget:
    """Steps of a chain, and chains."""

    steps: int = 20_000
    chains: int = 50
    seed: int = 0


FULL = Budget(steps=200_000, chains=100)
SIGMA = np.array([[1.0, 0.9], [0.9, 1.0]])
CURVATURES, MODES = np.linalg.eigh(np.linalg.inv(SIGMA))
STEP, A, BETA, NOISE = 0.1, 0.1, 0.9, 1.0
METHODS = {
    "SGLD": SGLD(),
    "MSGLD": MSGLD(bias_factor=A, smoothing=BETA),
    "ASGLD": ASGLD(bias_factor=A),
    "MSGLD, recipe": MSGLD(bias_factor=A, smoothing=BETA, variant="recipe"),
}


def arma(p1, p2, c, q):
    """Return the variance of x_t = p1 x_{t-1} + p2 x_{t-2} + v_t + c v_{t-1}, Var v = q."""
    return q * ((1 + c * c) * (1 - p2) + 2 * c * p1) / ((1 + p2) * ((1 - p2) ** 2 - p1**2))


def msgld_variance(curvature, step, a, variant="printed"):
    """Return the exact variance of MSGLD at temperature 1 on a Gaussian of the given curvature; a = 0 is SGLD."""
    h = step * curvature
    p1, p2 = 1 + BETA - h, -(BETA * (1 - h) + a * h * (1 - BETA))
    total = arma(p1, p2, -BETA, 2 * step) + arma(p1, p2, a * (1 - BETA) - BETA, step**2 * NOISE)
    return total + (arma(p1, p2, 0.0, 2 * step * a * (1 - BETA) ** 2) if variant == "recipe" else 0.0)


def covariance(variance):
    """Return the covariance whose variance along each mode of the target is variance(curvature)."""
    return MODES @ np.diag([variance(curvature) for curvature in CURVATURES]) @ MODES.T


def exact_covariance(method, step):
    """Return the stationary covariance of a method; ASGLD's by the mean field: sqrt(V) is held at its mean."""
    if method == "SGLD":
        return covariance(lambda curvature: msgld_variance(curvature, step, 0.0))
    if method.startswith("MSGLD"):
        variant = "recipe" if "recipe" in method else "printed"
        return covariance(lambda curvature: msgld_variance(curvature, step, A, variant))
    precision = np.linalg.inv(SIGMA)

    def of_scale(root):  # the two coordinates are alike: one mean square gradient
        return covariance(lambda curvature: msgld_variance(curvature, step, A / root))

    def mismatch(root):
        return (precision @ of_scale(root) @ precision)[0, 0] + NOISE - root**2

    return of_scale(brentq(mismatch, 0.5, 30.0))


def floor(method, step):
    """Return the mean absolute error of the stationary covariance."""
    return float(np.abs(exact_covariance(method, step) - SIGMA).mean())


# %%
# The runs: all chains of a method as one batch
# ---------------------------------------------
def error_curve(method, budget):
    """Return, at some step numbers, the error of the covariance of each chain so far, (points, C), and that of all chains."""
    precision = torch.tensor(np.linalg.inv(SIGMA))
    generator = torch.Generator().manual_seed(budget.seed)

    def noisy_gradient(theta):
        return theta @ precision + NOISE**0.5 * torch.randn(theta.shape, dtype=theta.dtype, generator=generator)

    draws = sample(
        lambda theta: 0.5 * (theta @ precision * theta).sum(1),
        torch.zeros(budget.chains, 2, dtype=torch.float64),
        sampler=METHODS[method],
        step_size=STEP,
        n_steps=budget.steps,
        n_draws=budget.steps,
        burn_in=0.0,
        random_state=budget.seed,
        gradient=noisy_gradient,
    ).values.numpy()
    points = np.unique(np.geomspace(20, len(draws), 60).astype(int))
    errors = np.empty((len(points), budget.chains))
    for row, count in enumerate(points):
        centred = draws[:count] - draws[:count].mean(axis=0)
        errors[row] = np.abs(np.einsum("sci,scj->cij", centred, centred) / count - SIGMA).mean(axis=(1, 2))
    kept = draws[len(draws) // 10 :].reshape(-1, 2)
    return {"points": points, "errors": errors, "pooled": np.abs(np.cov(kept.T) - SIGMA).mean()}


def main(argv=None):
    """Run the experiment."""
    budget, output = parse(__doc__, Budget(), FULL, argv)
    cells = Cells(output, "correlated_gaussian", budget)
    found = {method: cells(method, error_curve, method, budget) for method in METHODS}
    print(f"\nMean absolute error of the covariance, step {STEP}, {budget.steps} steps, {budget.chains} chains")
    rows = []
    for method, part in found.items():
        last = part["errors"][-1]
        spread = last.std(ddof=1) if len(last) > 1 else np.nan
        rows.append([method, f"{last.mean():.4f} ({spread:.4f})", f"{part['pooled']:.4f}", f"{floor(method, STEP):.4f}"])
    table(["method", "one chain, mean (sd)", "all chains", "floor of the law"], rows)
    steps = (0.1, 0.05, 0.03, 0.01, 0.001)
    print("\nFloor of the law against the step size")
    table(["method", *map(str, steps)], [[method, *(f"{floor(method, step):.4f}" for step in steps)] for method in METHODS])

    figure, ax = plt.subplots(figsize=(5.6, 4.4), layout="constrained")
    for number, (method, part) in enumerate(found.items()):
        ax.loglog(part["points"], part["errors"].mean(axis=1), label=method, **style(number))
        ax.axhline(floor(method, STEP), linewidth=0.8, alpha=0.7, **style(number))
    ax.set(xlabel="iterations", ylabel="mean absolute error of the covariance", title="thick: mean over chains; thin: floor")
    ax.legend()
    cells.save(figure, "correlated_gaussian")


if __name__ == "__main__":
    main()
