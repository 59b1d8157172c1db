"""
Non-reversible Langevin dynamics that learns its skew matrix
============================================================

The experiments of Krishnamurthy & Yin 2020: the posterior of a mixture y ~ N(a, sqrt 2) / 2 + N(b, sqrt 2) / 2, given 100
observations that are fed one at a time in a fixed order, sweep after sweep. With N = 2, (a, b) = (theta1, theta1 + theta2); with
N = 10, a and b are sums of five parameters each. Classical dynamics, a fixed skew matrix S and Algorithms 1 to 3 are compared by
the Wasserstein-1 distance of the marginals to a long Metropolis-Hastings run: at equal step size, and at step sizes that leave
equal biases. In a last run the data come from a regime that jumps by a Markov chain, and the samplers follow it.

Any S that does not look ahead leaves the target alone as the step goes to zero: S can only help on the way there. The prior of the
N = 10 problem is lost; here it is N(0, 1).
"""

# %%
# The posterior, seen through some observations
# ---------------------------------------------
from dataclasses import dataclass, replace
from itertools import cycle, islice, repeat

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Cells, parse, style, table, with_error

from sklearn_sgmcmc.engine import Stage, run
from sklearn_sgmcmc.samplers import MALA, SGLD, NonReversibleHessian, NonReversibleSGLD, NonReversibleSPSA, NonReversibleSPSA2
from sklearn_sgmcmc.schedules import Constant


@dataclass(frozen=True)
class Budget:
    """Steps of the two problems, of the reference and of the tracking run, and trials."""

    steps_2: int = 1500
    steps_10: int = 1000
    trials_2: int = 30
    trials_10: int = 50
    reference_steps: int = 1000
    tracking_steps: int = 1500
    seed: int = 0


FULL = Budget(steps_2=50_000, steps_10=200_000, reference_steps=20_000, tracking_steps=50_000)
T = 100
VARIANCE = 2.0


@dataclass(frozen=True)
class Mixture:
    """U(theta) = -log prior - sum_t log [N(y_t; a, 2) / 2 + N(y_t; b, 2) / 2], (a, b) = loadings theta, theta ~ N(0, prior_sd^2).

    Bound to n of the T observations it is an estimate of U, with the weight T / n.
    """

    loadings: torch.Tensor
    prior_sd: torch.Tensor
    y: torch.Tensor
    following: object = None

    n_data = float(T)

    @property
    def n_params(self):
        """P."""
        return len(self.prior_sd)

    def bind(self, batch, following):
        """Return U seen through the observations ``batch``, (n,)."""
        return replace(self, y=batch, following=following)

    def fresh(self):
        """Return U seen through the next observations."""
        return replace(self, y=next(self.following))

    def _residuals(self, theta):
        """Return y - a and y - b, (C, 2, n), and the probabilities of the two components."""
        residual = self.y - (theta @ self.loadings.T)[:, :, None]
        return residual, torch.softmax(-residual.square() / (2 * VARIANCE), dim=1)

    def value(self, theta):
        """Return U up to a constant, (C,)."""
        residual, _ = self._residuals(theta)
        log_density = torch.logsumexp(-residual.square() / (2 * VARIANCE), dim=1).mean(1)
        return 0.5 * (theta / self.prior_sd).square().sum(1) - T * log_density

    def grad(self, theta):
        """Return its gradient, (C, P)."""
        residual, share = self._residuals(theta)
        return theta / self.prior_sd**2 - (T / VARIANCE * (share * residual).mean(2)) @ self.loadings

    def value_and_grad(self, theta):
        """Return both."""
        return self.value(theta), self.grad(theta)

    def hvp(self, theta, vectors):
        """Return the Hessian times vectors (C, F, P)."""
        residual, share = self._residuals(theta)
        mixed = (share[:, 0] * share[:, 1] / VARIANCE**2)[:, None, None] * residual[:, :, None] * residual[:, None, :]
        sign = torch.tensor([[-1.0, 1.0], [1.0, -1.0]], dtype=theta.dtype)
        hessian = T * ((sign[:, :, None] * mixed).mean(3) + torch.diag_embed(share.mean(2) / VARIANCE))
        return vectors @ self.loadings.T @ hessian @ self.loadings + vectors / self.prior_sd**2


def observe(a, b, n, generator):
    """Return n observations."""
    first = torch.rand(n, generator=generator) < 0.5
    centre = torch.where(first, torch.as_tensor(a, dtype=torch.float64), torch.as_tensor(b, dtype=torch.float64))
    return centre + VARIANCE**0.5 * torch.randn(n, dtype=torch.float64, generator=generator)


def problem(n, seed):
    """Return the posterior of n = 2 or 10 parameters, whose data have (a, b) = (0, 1)."""
    y = observe(0.0, 1.0, T, torch.Generator().manual_seed(seed))
    if n == 2:
        return Mixture(torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64), torch.tensor([10.0**0.5, 1.0]).double(), y)
    halves = torch.eye(2, dtype=torch.float64).repeat_interleave(5, dim=1)
    return Mixture(halves, torch.ones(10, dtype=torch.float64), y)


# %%
# The samplers, and a grid of step sizes as chains
# ------------------------------------------------
# S starts at N(0, 1), within [-2, 2], and moves at the rate alpha_S = eps / 10 for ever. Algorithm 1 takes all neighbours.
LEARNING = {"skew_scale": 1.0, "skew_limit": 2.0, "skew_rate": 0.1, "adapt": "always"}
METHODS = {
    "classical": SGLD(),
    "fixed S": NonReversibleSGLD(skew_scale=1.0),
    "Algorithm 1": NonReversibleHessian(n_pairs=None, **LEARNING),
    "Algorithm 2": NonReversibleSPSA(**LEARNING),
    "Algorithm 3": NonReversibleSPSA2(n_inner=5, **LEARNING),
}
GRADIENTS = {"classical": "1", "fixed S": "1", "Algorithm 1": "1 + P - 1 Hessian products", "Algorithm 2": "2", "Algorithm 3": "11"}
STEPS = {2: (3e-4, 1e-3, 3e-3), 10: (1e-4, 3e-4, 1e-3)}
EQUAL_STEP = 1e-3


def observations_per_step(sampler):
    """Return how many observations a step takes: the inner steps of Algorithm 3 take one each."""
    return 1 + getattr(sampler, "n_inner", 0)


def sweeps(y, per_step):
    """Yield the observations in their order for ever; after each come those of the inner steps, from a walk of their own."""
    slow, fast = cycle(y[:, None].unbind()), cycle(y[:, None].unbind())
    while True:
        yield next(slow)
        yield from islice(fast, per_step - 1)


def walk(sampler, target, batches, theta, step_size, n_steps, seed):
    """Return the states of all chains after each step, (n_steps, C, P)."""
    timeline = Constant().timeline(n_steps=n_steps, steps_per_epoch=T, burn_in=0.0, n_draws=n_steps)
    generator = torch.Generator().manual_seed(seed)

    def noise(like):
        return torch.randn(like.shape, dtype=like.dtype, generator=generator)

    return run([Stage(sampler, timeline, target, step_size, 1.0)], theta, batches, noise).draws.numpy()


def reference(n, budget):
    """Return quantiles of each marginal by Metropolis-Hastings (MALA, all data), and how far two halves of the chains differ."""
    target = problem(n, budget.seed)
    theta = torch.randn(200, n, generator=torch.Generator().manual_seed(1)).double() * target.prior_sd * 0.5
    size = 0.02 if n == 2 else 0.004
    draws = walk(MALA(), target, repeat(target.y), theta, size, budget.reference_steps, budget.seed)
    draws = draws[len(draws) // 4 :: max(1, len(draws) // 400)]
    one, two = (quantiles(half.reshape(-1, n)) for half in (draws[:, :100], draws[:, 100:]))
    pooled = draws.reshape(-1, n)
    return {"quantiles": quantiles(pooled), "mean": pooled.mean(axis=0), "halves": np.abs(one - two).mean(axis=0).mean()}


LEVELS = (np.arange(200) + 0.5) / 200


def quantiles(draws):
    """Return 200 quantiles along the first axis: their mean absolute difference is the Wasserstein-1 distance."""
    return np.quantile(draws, LEVELS, axis=0)


def trials(method, n, budget, exact):
    """Return the distance of each trial's marginals to the target along the run, for every step size, and pooled at the end.

    The distance at step k is that of the draws of steps k / 2 to k, averaged over marginals.
    """
    n_trials, n_steps = (budget.trials_2, budget.steps_2) if n == 2 else (budget.trials_10, budget.steps_10)
    target = problem(n, budget.seed)
    sizes = torch.tensor(STEPS[n], dtype=torch.float64).repeat_interleave(n_trials)[:, None]
    theta = torch.zeros(len(sizes), n, dtype=torch.float64)
    theta[:, 0] = 4.0
    batches = sweeps(target.y, observations_per_step(METHODS[method]))
    draws = walk(METHODS[method], target, batches, theta, sizes, n_steps, budget.seed)
    points = np.unique(np.geomspace(50, n_steps, 30).astype(int))
    distance = np.empty((len(points), len(sizes)))
    for row, stop in enumerate(points):
        window = draws[stop // 2 : stop : max(1, stop // 1000)]
        distance[row] = np.abs(quantiles(window) - exact["quantiles"][:, None, :]).mean(axis=(0, 2))
    last = draws[n_steps // 2 :: max(1, n_steps // 2000)].reshape(-1, len(STEPS[n]), n_trials, n)
    bias = [np.abs(quantiles(last[:, k].reshape(-1, n)) - exact["quantiles"]).mean() for k in range(len(STEPS[n]))]
    mean = last.mean(axis=0)  # (step sizes, trials, n)
    return {"points": points, "distance": distance.reshape(len(points), len(STEPS[n]), n_trials), "bias": bias, "mean": mean}


# %%
# Iterations to a distance
# ------------------------
def iterations_to(part, size, level):
    """Return the first point at which each trial is within ``level`` of the target; infinite if it never is."""
    within = part["distance"][:, size] <= level
    return np.where(within.any(axis=0), part["points"][within.argmax(axis=0)], np.inf)


def median_with_interval(values):
    """Return the median over trials with a 95 % bootstrap interval."""
    picks = np.random.RandomState(0).randint(len(values), size=(2000, len(values)))
    medians = np.sort(values[picks], axis=1)[:, len(values) // 2]
    low, high = np.sort(medians)[[50, 1949]]
    show = ["never" if value == np.inf else f"{value:.0f}" for value in (np.sort(values)[len(values) // 2], low, high)]
    return f"{show[0]} [{show[1]}, {show[2]}]"


def compare(n, found, exact, level):
    """Print what the trials say; return the step size at which the curves are drawn."""
    middle = STEPS[n].index(EQUAL_STEP)
    allowed = found["classical"]["bias"][middle] + float(exact["halves"])  # smaller differences are not resolved
    rows = []
    for method, part in found.items():
        fitting = [k for k in range(len(STEPS[n])) if part["bias"][k] <= allowed]
        equal = max(fitting) if fitting else None
        rows.append(
            [
                method,
                GRADIENTS[method].replace("P - 1", str(n - 1)),
                " ".join(f"{value:.3f}" for value in part["bias"]),
                with_error(part["distance"][-1, middle]),
                median_with_interval(iterations_to(part, middle, level)),
                "-" if equal is None else f"{STEPS[n][equal]:g}",
                "-" if equal is None else median_with_interval(iterations_to(part, equal, level)),
            ]
        )
    sizes = ", ".join(f"{size:g}" for size in STEPS[n])
    print(f"\nN = {n}: Wasserstein-1 distance; the reference's own halves differ by {float(exact['halves']):.3f}")
    head = ["method", "gradients a step", f"all trials, last half, eps = {sizes}", f"one trial, eps = {STEPS[n][middle]:g}"]
    table([*head, f"iterations to {level}", "eps of equal bias", f"iterations to {level} there"], rows)
    print("\nPosterior means, mean over trials (standard error)")
    shown = (0, 1) if n == 2 else (0, 4, 5, 9)
    rows = [[method, *(with_error(part["mean"][middle, :, i]) for i in shown)] for method, part in found.items()]
    table(["", *(f"theta{i + 1}" for i in shown)], [["Metropolis-Hastings", *(f"{exact['mean'][i]:.3f}" for i in shown)], *rows])
    return middle


# %%
# A target that jumps
# -------------------
# theta1 of the data is 0 or 2, and changes with probability 1 / 500 at each step.
def regimes(n_steps, seed):
    """Return theta1 of the data at each step."""
    jumps = np.random.RandomState(seed).rand(n_steps) < 1 / 500
    return 2.0 * (np.cumsum(jumps) % 2)


def tracking(method, budget):
    """Return the mean over trials of theta1 + theta2 / 2 along the run, and its root mean square error after the start."""
    path = regimes(budget.tracking_steps, budget.seed)
    generator = torch.Generator().manual_seed(budget.seed)
    per_step = observations_per_step(METHODS[method])  # all of one regime
    stream = (observe(level, level + 1.0, 1, generator) for level in np.append(path, path[-1]) for _ in range(per_step))
    theta = torch.zeros(budget.trials_2, 2, dtype=torch.float64)
    target = problem(2, budget.seed)
    draws = walk(METHODS[method], target, stream, theta, TRACKING_STEP, budget.tracking_steps, budget.seed)
    centre = draws[:, :, 0] + draws[:, :, 1] / 2
    error = np.sqrt(((centre - path[:, None] - 0.5) ** 2)[budget.tracking_steps // 10 :].mean(axis=0))
    return {"centre": centre.mean(axis=1), "error": error}


TRACKING_STEP = 1e-3


def main(argv=None):
    """Run the experiment."""
    budget, output = parse(__doc__, Budget(), FULL, argv)
    cells = Cells(output, "nonreversible_mixture", budget)
    figure, axes = plt.subplots(3, figsize=(5.6, 11), layout="constrained")
    for ax, n, level in zip(axes, (2, 10), (0.5, 0.5), strict=False):
        exact = cells(f"reference N = {n}", reference, n, budget)
        found = {method: cells(f"{method} N = {n}", trials, method, n, budget, exact) for method in METHODS}
        middle = compare(n, found, exact, level)
        for number, (method, part) in enumerate(found.items()):
            distance = part["distance"][:, middle]
            mean, error = distance.mean(axis=1), distance.std(axis=1, ddof=1) / distance.shape[1] ** 0.5
            ax.loglog(part["points"], mean, label=method, **style(number))
            ax.fill_between(
                part["points"], mean - 2 * error, mean + 2 * error, color=style(number)["color"], alpha=0.15, linewidth=0
            )
        ax.set(xlabel="iterations", ylabel="Wasserstein-1 distance of a trial", title=f"N = {n}, step size {STEPS[n][middle]:g}")
    axes[0].legend(title="mean of the trials, 2 s.e.", fontsize="small")
    rows = []
    for number, method in enumerate(METHODS):
        part = cells(f"{method} tracking", tracking, method, budget)
        rows.append([method, with_error(part["error"])])
        axes[2].plot(part["centre"][:3000], linewidth=1, **style(number))
    print(f"\nTracking at step size {TRACKING_STEP:g}: root mean square error of (a + b) / 2, {budget.trials_2} trials")
    table(["method", "error"], rows)
    path = regimes(budget.tracking_steps, budget.seed)[:3000] + 0.5
    axes[2].plot(path, color="0.6", linewidth=2.5, zorder=0, label="of the data")
    axes[2].set(xlabel="iterations", ylabel="(a + b) / 2, mean of the trials", title="a target that jumps")
    axes[2].legend(fontsize="small")
    cells.save(figure, "nonreversible_mixture")


if __name__ == "__main__":
    main()
