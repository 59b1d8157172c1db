"""
Five modes: who crosses, and what temperature they cross at
===========================================================

The second experiment of Kim, Song & Liang 2020: a mixture of five unit Gaussians in the plane, gradients with N(0, I) noise, step
size 0.05; MSGLD with bias factor 10 and smoothing 0.9, ASGLD with bias factor 1. SGLD, cyclical SGLD and MSGLD's recipe form stand
beside them, and a mixture of five Gaussians fitted by variational inference. The centres are a reconstruction.
"""

# %%
# The target
# ----------
from dataclasses import dataclass
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Cells, parse, table

from sklearn_sgmcmc.samplers import ASGLD, MSGLD, SGLD
from sklearn_sgmcmc.sampling import sample
from sklearn_sgmcmc.schedules import Constant, Cyclical


@dataclass(frozen=True)
class Budget:
    """Steps of a chain, chains, and gradient steps of the variational fit."""

    steps: int = 10_000
    chains: int = 40
    fit_steps: int = 1500
    seed: int = 0


FULL = Budget(steps=100_000, chains=100, fit_steps=10_000)
CENTRES = torch.tensor([[-3.0, -3.0], [-3.0, 0.0], [0.0, 0.0], [3.0, 0.0], [3.0, 3.0]], dtype=torch.float64)
STEP = 0.05
METHODS = {
    "SGLD": (SGLD(), Constant()),
    "MSGLD": (MSGLD(bias_factor=10.0, smoothing=0.9), Constant()),
    "MSGLD, recipe": (MSGLD(bias_factor=10.0, smoothing=0.9, variant="recipe"), Constant()),
    "ASGLD": (ASGLD(bias_factor=1.0), Constant()),
    "cyclical SGLD": (SGLD(), Cyclical(n_cycles=20, exploration=0.25)),
}
VARIATIONAL = "variational mixture"


def potential(theta):
    """Return U = -log sum_i exp(-|theta - mu_i|^2 / 2) / (10 pi), (C,)."""
    square = (theta[:, None, :] - CENTRES).square().sum(2)
    return -torch.logsumexp(-0.5 * square, dim=1) + np.log(10 * np.pi)


def gradient(theta):
    """Return its gradient, (C, 2)."""
    offset = theta[:, None, :] - CENTRES
    share = torch.softmax(-0.5 * offset.square().sum(2), dim=1)
    return (share[:, :, None] * offset).sum(1)


def nearest(theta):
    """Return the number of the nearest centre, for points (..., 2)."""
    return np.linalg.norm(theta[..., None, :] - CENTRES.numpy(), axis=-1).argmin(axis=-1)


# %%
# The chains, all from the middle mode
# ------------------------------------
def chains(method, budget):
    """Return the draws (S, C, 2)."""
    generator = torch.Generator().manual_seed(budget.seed)
    sampler, schedule = METHODS[method]
    draws = sample(
        potential,
        torch.zeros(budget.chains, 2, dtype=torch.float64),
        sampler=sampler,
        schedule=schedule,
        step_size=STEP,
        n_steps=budget.steps,
        n_draws=budget.steps,
        burn_in=0.0,
        random_state=budget.seed,
        gradient=lambda theta: gradient(theta) + torch.randn(theta.shape, dtype=theta.dtype, generator=generator),
    )
    return {"draws": draws.values.numpy().astype(np.float32)}


# %%
# The baseline: a mixture fitted by variational inference
# -------------------------------------------------------
# q = sum_k w_k N(m_k, L_k L_k^T) minimises KL(q | target): a Monte Carlo estimate with reparametrised draws from every component.
def variational(budget):
    """Return draws from the fitted mixture, (S, 1, 2), started at N(0, I) means."""
    generator = torch.Generator().manual_seed(budget.seed)
    means = torch.randn(5, 2, dtype=torch.float64, generator=generator).requires_grad_()
    logits = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    raw = torch.zeros(5, 3, dtype=torch.float64, requires_grad=True)  # log diagonal and off-diagonal of L

    def factor():
        top = torch.stack([raw[:, 0].exp(), torch.zeros_like(raw[:, 0])], dim=1)
        return torch.stack([top, torch.stack([raw[:, 2], raw[:, 1].exp()], dim=1)], dim=1)

    optimiser = torch.optim.Adam([means, logits, raw], lr=0.02)
    for _ in range(budget.fit_steps):
        points = means + torch.einsum("kij,skj->ski", factor(), torch.randn(20, 5, 2, dtype=torch.float64, generator=generator))
        components = torch.distributions.MultivariateNormal(means, scale_tril=factor(), validate_args=False)
        log_weight = torch.log_softmax(logits, dim=0)
        log_q = torch.logsumexp(components.log_prob(points[:, :, None, :]) + log_weight, dim=2)
        gap = log_q + potential(points.reshape(-1, 2)).view(20, 5)
        optimiser.zero_grad()
        (gap.mean(dim=0) @ log_weight.exp()).backward()
        optimiser.step()
    with torch.no_grad():
        chosen = torch.multinomial(torch.softmax(logits, 0), 20_000, replacement=True, generator=generator)
        noise = torch.randn(20_000, 2, dtype=torch.float64, generator=generator)
        draws = means[chosen] + torch.einsum("sij,sj->si", factor()[chosen], noise)
    return {"draws": draws.numpy()[:, None]}


# %%
# Shares of mass, and the spread around the nearest centre
# --------------------------------------------------------
def summary(draws):
    """Return the share of each mode, its error for all chains and for one, crossings per 1,000 steps and the mean of U."""
    draws = draws[len(draws) // 10 :]
    mode = nearest(draws)
    share = np.stack([(mode == k).mean(axis=0) for k in range(5)])  # (5, C)
    one = 0.5 * np.abs(share - share_of_target()[:, None]).sum(axis=0).mean()
    crossings = 1000 * (mode[1:] != mode[:-1]).mean() if draws.shape[1] > 1 else np.nan
    energy = potential(torch.as_tensor(draws.reshape(-1, 2), dtype=torch.float64)).mean()
    return share.mean(axis=1), 0.5 * np.abs(share.mean(axis=1) - share_of_target()).sum(), one, crossings, float(energy)


def independent_draws(n=200_000):
    """Return independent draws of the target, (n, 2)."""
    rng = np.random.RandomState(0)
    return CENTRES.numpy()[rng.randint(5, size=n)] + rng.randn(n, 2)


@cache
def share_of_target():
    """Return the mass nearest to each centre."""
    return np.bincount(nearest(independent_draws()), minlength=5) / 200_000


def main(argv=None):
    """Run the experiment."""
    budget, output = parse(__doc__, Budget(), FULL, argv)
    cells = Cells(output, "five_modes", budget)
    found = {method: cells(method, chains, method, budget)["draws"] for method in METHODS}
    found[VARIATIONAL] = cells(VARIATIONAL, variational, budget)["draws"]
    print(f"\nStep {STEP}, {budget.steps} steps, {budget.chains} chains")
    rows = []
    for method, draws in {"target": independent_draws()[:, None], **found}.items():
        share, error, one, crossings, energy = summary(draws)
        shares = " ".join(f"{value:.3f}" for value in share)
        rows.append([method, shares, f"{error:.3f}", f"{one:.3f}", f"{crossings:.1f}", f"{energy:.3f}"])
    table(["method", "share of the modes", "total variation", "of one chain", "crossings per 1000", "mean U, nats"], rows)

    grid = np.linspace(-6, 6, 121)
    plane = np.stack(np.meshgrid(grid, grid), axis=-1)
    energy = potential(torch.tensor(plane.reshape(-1, 2))).view(121, 121).numpy()
    figure, axes = plt.subplots(3, 2, figsize=(5.6, 8.4), sharex=True, sharey=True, layout="constrained")
    for ax, (method, draws) in zip(axes.flat, found.items(), strict=True):
        one = draws[:: max(1, len(draws) // 1000), 0]
        ax.scatter(*one.T, s=5, color="#D55E00", alpha=0.5, linewidths=0, label="draws")
        lines = ax.contour(grid, grid, energy, levels=(3, 4, 5, 7, 10), colors="#0072B2", linewidths=0.9)
        ax.set(title=method, xlim=(-6, 6), ylim=(-6, 6), aspect="equal")
    ax.clabel(lines, fontsize="x-small", fmt="%g")
    axes[0, 0].legend(loc="upper left", markerscale=3)
    figure.supxlabel("first coordinate")
    figure.supylabel("second coordinate")
    figure.suptitle("Draws of the first chain on the energy contours, nats")
    cells.save(figure, "five_modes")


if __name__ == "__main__":
    main()
