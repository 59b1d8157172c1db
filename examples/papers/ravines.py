"""
Long narrow ravines: who reaches the end
========================================

The ravine experiment of Kim, Song & Liang 2020: y = f(x) + N(0, 1), f(x) = (x - 1)^2 + 2 sin(theta1 x) + theta1 / 30 +
cos(theta2 x - 1) - theta2 / 20 at theta = (20, 10), x uniform on [-2, 4], 10,000 rows, priors N(0, 1), batches of 100, 30,000
iterations. The paper reports that MSGLD reaches (20, 10) on five data sets of five, ASGLD on four, SGLD, SGHMC and pSGLD on none.
Step sizes and starting points are lost: here every method has the same tuning budget on a sixth data set, chains start at draws of
the prior, and the best setting then runs on the five. (The 30 and the 20 in f are a reconstruction.)

Here the script is shown without being run, as no method arrives in seconds. The figure is that of the run that
:doc:`/papers` records.

.. image:: /images/papers_ravines.png
   :alt: figure of the recorded run
"""

# sphinx_gallery_thumbnail_path = "images/papers_ravines.png"

# %%
# The posterior
# -------------
from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Cells, parse, style, table

from sklearn_sgmcmc.engine import Stage, run
from sklearn_sgmcmc.samplers import ASGLD, MSGLD, PSGLD, SGHMC, SGLD
from sklearn_sgmcmc.schedules import Constant


@dataclass(frozen=True)
class Budget:
    """Rows of a data set, steps of a run, starts per setting in tuning and per data set."""

    rows: int = 10_000
    steps: int = 3000
    tuning_starts: int = 5
    starts: int = 4
    seed: int = 0


FULL = Budget(steps=30_000, tuning_starts=10, starts=10)
TRUTH = (20.0, 10.0)
BATCH = 100
REACHED = 0.5
"""A chain has reached the truth if the mean of its last third lies within this distance of it, in both coordinates."""


def curve(theta, x):
    """Return f at x (..., n) for theta (..., 2)."""
    one, two = theta[..., :1], theta[..., 1:]
    return (x - 1) ** 2 + 2 * torch.sin(one * x) + one / 30 + torch.cos(two * x - 1) - two / 20


@dataclass(frozen=True)
class Ravine:
    """U(theta) = |theta|^2 / 2 + sum_n (y_n - f(x_n))^2 / 2; bound to rows x, y (C, n) of each chain it is an estimate of U."""

    n_data: float
    x: torch.Tensor | None = None
    y: torch.Tensor | None = None

    n_params = 2

    def bind(self, batch, following):
        """Return U seen through a batch."""
        return replace(self, x=batch[0], y=batch[1])

    def value(self, theta):
        """Return U, (C,)."""
        square = (self.y - curve(theta, self.x)).square().mean(1)
        return 0.5 * theta.square().sum(1) + 0.5 * self.n_data * square

    def grad(self, theta):
        """Return its gradient, (C, 2)."""
        one, two = theta[:, :1], theta[:, 1:]
        residual = curve(theta, self.x) - self.y
        by_one = 2 * self.x * torch.cos(one * self.x) + 1 / 30
        by_two = -self.x * torch.sin(two * self.x - 1) - 1 / 20
        return theta + self.n_data * torch.stack([(residual * by_one).mean(1), (residual * by_two).mean(1)], dim=1)


def data(n_rows, number):
    """Return x and y of one data set, (n_rows,) each."""
    generator = torch.Generator().manual_seed(1000 + number)
    x = 6 * torch.rand(n_rows, dtype=torch.float64, generator=generator) - 2
    return x, curve(torch.tensor(TRUTH, dtype=torch.float64), x) + torch.randn(n_rows, dtype=torch.float64, generator=generator)


# %%
# The methods, and what is tuned
# ------------------------------
# Every method has twelve settings: step sizes times N, and for those with a bias factor or a friction three values of it.
RATES = (0.003, 0.01, 0.03, 0.1)
GRID = {
    "SGLD": (SGLD, {}, np.geomspace(1e-3, 2.0, 12), [{}]),
    "SGHMC": (SGHMC, {}, RATES, [{"friction": value} for value in (0.01, 0.1, 0.5)]),
    "pSGLD": (PSGLD, {"adapt": "always"}, np.geomspace(1e-3, 2.0, 12), [{}]),
    "ASGLD": (ASGLD, {}, RATES, [{"bias_factor": value} for value in (1.0, 10.0, 100.0)]),
    "MSGLD": (MSGLD, {}, RATES, [{"bias_factor": a, "smoothing": b} for a, b in ((10.0, 0.9), (10.0, 0.99), (100.0, 0.99))]),
}


def settings(method):
    """Return the learning rates and the fields of each setting of a method."""
    _, _, rates, fields = GRID[method]
    return [(float(rate), field) for rate in rates for field in fields]


def walk(method, chosen, tables, n_starts, budget):
    """Return every tenth state of the chains, (S, C, 2): settings times data sets times starts, all as one batch."""
    kind, fixed, _, _ = GRID[method]
    n_chains = len(chosen) * len(tables) * n_starts
    per_setting = len(tables) * n_starts

    def column(values):
        return torch.tensor(values, dtype=torch.float64).repeat_interleave(per_setting)[:, None]

    rates = column([rate for rate, _ in chosen])
    fields = {name: column([field[name] for _, field in chosen]) for name in chosen[0][1]}
    x, y = (torch.stack(part) for part in zip(*tables, strict=True))
    table_of_chain = torch.arange(len(tables)).repeat_interleave(n_starts).repeat(len(chosen))[:, None]
    generator = torch.Generator().manual_seed(budget.seed)

    def batches():
        while True:
            rows = torch.randint(budget.rows, (n_chains, BATCH), generator=generator)
            yield x[table_of_chain, rows], y[table_of_chain, rows]

    def noise(like):
        return torch.randn(like.shape, dtype=like.dtype, generator=generator)

    plan = Constant().timeline(n_steps=budget.steps, steps_per_epoch=1.0, burn_in=0.0, n_draws=max(1, budget.steps // 10))
    theta = torch.randn(n_chains, 2, dtype=torch.float64, generator=generator)
    stage = Stage(kind(**fixed, **fields), plan, Ravine(float(budget.rows)), rates / budget.rows, 1.0)
    return run([stage], theta, batches(), noise).draws.numpy()


def reached(draws):
    """Return which chains end at the truth."""
    last = draws[-max(1, len(draws) // 3) :].mean(axis=0)
    return (np.abs(last - TRUTH) < REACHED).all(axis=1)  # False for a chain that is no longer finite


def mean_square(theta, table):
    """Return the mean squared residual of each theta (C, 2) on a data set; infinite where theta is not finite."""
    x, y = table
    found = np.array([float((y - curve(point, x)).square().mean()) for point in torch.as_tensor(theta)])
    return np.where(np.isfinite(found), found, np.inf)


def tune(method, budget):
    """Return how often each setting reaches the truth on the sixth data set, and the median squared residual where it ends."""
    chosen, extra = settings(method), data(budget.rows, 5)
    draws = walk(method, chosen, [extra], budget.tuning_starts, budget)
    ends = mean_square(draws[-1], extra).reshape(len(chosen), -1)
    return {"share": reached(draws).reshape(len(chosen), -1).mean(axis=1), "residual": np.median(ends, axis=1)}


def final(method, setting, budget):
    """Return the paths on the five data sets."""
    draws = walk(method, [setting], [data(budget.rows, number) for number in range(5)], budget.starts, budget)
    return {"draws": draws.reshape(len(draws), 5, budget.starts, 2)}


def main(argv=None):
    """Run the experiment."""
    budget, output = parse(__doc__, Budget(), FULL, argv)
    cells = Cells(output, "ravines", budget)
    rows, paths = [], {}
    for method in GRID:
        tuned = cells(f"tune {method}", tune, method, budget)
        best = np.lexsort((tuned["residual"], -tuned["share"]))[0]  # most often there; then the least residual
        setting = settings(method)[best]
        draws = cells(f"final {method}", final, method, setting, budget)["draws"]
        there = reached(draws.reshape(len(draws), -1, 2)).reshape(5, -1)
        paths[method] = draws[:, 0, 0]
        ends = " ".join(f"{value:.1f}" for value in draws[-1, :, 0, 0])
        fields = ", ".join(f"{name} {value:g}" for name, value in setting[1].items())
        tuning = f"{tuned['share'][best]:.2f}, {tuned['residual'][best]:.2f}"
        sets = f"{int(there[:, 0].sum())} of 5"
        rows.append([method, f"{setting[0]:.2g}", fields or "-", tuning, sets, f"{there.mean():.2f}", ends])
    print(f"\n{budget.steps} steps; 5 data sets with {budget.starts} starts each; noise variance 1")
    head = ["method", "learning rate", "setting", "tuning: share, residual", "first start there", "share of all starts"]
    table([*head, "theta1 at the end, first start of each set"], rows)

    grid_one, grid_two = np.linspace(-8, 24, 161), np.linspace(-8, 14, 111)
    x, y = data(400, 0)
    plane = torch.tensor(np.stack(np.meshgrid(grid_one, grid_two), axis=-1).reshape(-1, 2))
    energy = (curve(plane, x) - y).square().mean(1).view(111, 161).numpy()
    figure, ax = plt.subplots(figsize=(5.6, 5.8), layout="constrained")
    filled = ax.contourf(grid_one, grid_two, energy, levels=12, cmap="Greys", alpha=0.6)
    figure.colorbar(filled, ax=ax, location="bottom", aspect=40, label="mean squared residual (U / N is half of it)")
    for number, (method, path) in enumerate(paths.items()):
        ax.plot(*path[:: max(1, len(path) // 300)].T, linewidth=1.2, label=method, **style(number))
        ax.plot(*path[-1], "o", markersize=8, markeredgecolor="white", color=style(number)["color"])
    ax.plot(*TRUTH, "k*", markersize=14, label="truth", linestyle="none")
    ax.set(xlabel="theta1", ylabel="theta2", title="Paths on the first data set; a dot ends each", xlim=(-8, 24), ylim=(-8, 14))
    ax.legend(loc="upper left")
    cells.save(figure, "ravines")


if __name__ == "__main__":
    main()
