"""
Landsat: nine ways to walk through one posterior
================================================

The Landsat experiment of Kim, Song & Liang 2020: a 36-30-30-6 ReLU network, prior N(0, 1), batches of 50 of the 4,435 training
rows, 3,000 epochs, a learning rate that halves every tenth of the run, temperature 0.01, five runs, draws every 500 steps. There
accuracies are averaged over the last 200 draws. Beside them stand what the draws are for, the average of their predictions, with
its log loss and calibration error; the temperature 1; and Adam, SGD, Santa, BAOAB and cyclical MSGLD.

``python examples/papers/landsat_table.py --full`` is the paper's length; it can be stopped and started again. ``--tune-epochs 60``
chooses the learning rates on an inner fifth of the training rows instead of taking those of ``RATES``.
"""

# %%
# The methods, and the learning rates that are tried
# --------------------------------------------------
import warnings
from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
import numpy as np
from experiment import Cells, parse, style, table, with_error
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from sklearn_sgmcmc import BayesianMLPClassifier
from sklearn_sgmcmc.datasets import load_landsat
from sklearn_sgmcmc.metrics import expected_calibration_error
from sklearn_sgmcmc.samplers import ASGLD, BAOAB, MSGLD, PSGLD, SGD, SGHMC, SGLD, Adam, Santa
from sklearn_sgmcmc.schedules import Annealed, Cyclical, StepDecay


@dataclass(frozen=True)
class Budget:
    """epochs and runs of a cell, steps between draws, draws at the end that are averaged; 0 tuning epochs: take RATES."""

    epochs: int = 10
    runs: int = 5
    thin: int = 20
    averaged: int = 15
    tune_epochs: int = 0
    seed: int = 0


FULL = Budget(epochs=3000, thin=500, averaged=200)
BATCH = 50


class EvenStepDecay(StepDecay):
    """Step decay whose draws are kept at equal numbers of steps, as in the paper, and not at equal increments of step size."""

    def draw_weight(self, step_size, temperature):
        return np.ones_like(step_size)


DECAY = EvenStepDecay(factor=0.5)
METHODS = {
    "SGLD": (SGLD(), DECAY),
    "MSGLD": (MSGLD(bias_factor=1.0, smoothing=0.9), DECAY),
    "ASGLD": (ASGLD(bias_factor=0.01), DECAY),
    "pSGLD": (PSGLD(adapt="always"), DECAY),
    "SGHMC": (SGHMC(), DECAY),
    "BAOAB": (BAOAB(), DECAY),
    "cyclical MSGLD": (MSGLD(bias_factor=1.0, smoothing=0.9), Cyclical(n_cycles=4)),
    "Santa": (Santa(adapt="always"), Annealed()),
    "SGD": (SGD(momentum=0.9), DECAY),
    "Adam": (Adam(), DECAY),
}
OPTIMISERS = ("SGD", "Adam")  # no temperature
LANGEVIN = (0.003, 0.01, 0.03, 0.1, 0.3)
GRID = dict.fromkeys(("SGLD", "MSGLD", "ASGLD", "cyclical MSGLD"), LANGEVIN)
GRID |= dict.fromkeys(("SGHMC", "BAOAB", "SGD"), (0.003, 0.01, 0.03, 0.1))
GRID |= dict.fromkeys(("pSGLD", "Adam", "Santa"), (0.001, 0.003, 0.01, 0.03))
RATES = {"SGLD": 0.3, "MSGLD": 0.3, "ASGLD": 0.3, "cyclical MSGLD": 0.3, "SGHMC": 0.1, "BAOAB": 0.1, "SGD": 0.1}
RATES |= {"pSGLD": 0.01, "Adam": 0.03, "Santa": 0.001}  # by --tune-epochs 60

landsat = load_landsat()
X, y = landsat.data.astype(np.float32), landsat.target
TRAIN, TEST = landsat.train_indices, landsat.test_indices
classes = np.unique(y)


# %%
# One cell: a method at a learning rate and a temperature, all runs as one batch of chains
# ----------------------------------------------------------------------------------------
def n_draws(budget, rows):
    """Return the draws of a run."""
    return max(1, budget.epochs * len(rows) // BATCH // budget.thin)


def steps_of_draws(method, budget, rows):
    """Return after how many steps each draw is kept: a cyclical schedule keeps them in parts of the run only."""
    steps = -(-budget.epochs * len(rows) // BATCH)
    plan = METHODS[method][1].timeline(n_steps=steps, steps_per_epoch=len(rows) / BATCH, burn_in=0.0, n_draws=n_draws(budget, rows))
    return 1 + np.flatnonzero(plan.collect)


def fit(method, rate, temperature, budget, rows):
    """Return the fitted model of one cell on the given training rows."""
    sampler, schedule = METHODS[method]
    model = BayesianMLPClassifier(
        (30, 30),
        sampler=sampler,
        temperature=None if method in OPTIMISERS else temperature,
        learning_rate=rate,
        warm_up=0,
        schedule=schedule,
        max_iter=budget.epochs,
        burn_in=0.0,  # draws from the whole run: the curves need them
        n_draws=n_draws(budget, rows),
        n_chains=budget.runs,
        batch_size=BATCH,
        random_state=budget.seed,
        verbose=int(budget.epochs > 100),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # draws from the start have not mixed, and are not averaged
        return model.fit(X[rows], y[rows])


def evaluate(model, rows, averaged):
    """Return each draw's accuracy, (S, C), and the predictions averaged over the last draws of each chain, (C, n, K)."""
    S, C = model.draws_.shape[:2]
    right, mean = np.zeros((S, C)), []
    for block in np.array_split(rows, -(-len(rows) // 200)):
        proba = model.sample_posterior(X[block]).reshape(S, C, len(block), -1)
        right += (classes[proba.argmax(axis=3)] == y[block]).sum(axis=2)
        mean.append(proba[-averaged:].mean(axis=0, dtype=np.float64))
    return right / len(rows), np.concatenate(mean, axis=1)


def quality(proba, rows):
    """Return accuracy, log loss and calibration error of averaged predictions."""
    proba = proba / proba.sum(axis=1, keepdims=True)
    accuracy = np.mean(classes[proba.argmax(axis=1)] == y[rows])
    return accuracy, log_loss(y[rows], proba, labels=classes), expected_calibration_error(y[rows], proba, labels=classes)


def cell(method, rate, temperature, budget, rows, held_out):
    """Return what the table and the figure need of one cell."""
    model = fit(method, rate, temperature, budget, rows)
    train, _ = evaluate(model, rows, budget.averaged)
    test, proba = evaluate(model, held_out, budget.averaged)
    return {
        "steps": steps_of_draws(method, budget, rows),
        "train": train,
        "test": test,
        "per_run": np.array([quality(run, held_out) for run in proba]),
        "all_runs": np.array(quality(proba.mean(axis=0), held_out)),
    }


# %%
# Learning rates
# --------------
# SGLD is run at each of its rates. The others take the rate with the best averaged accuracy on an inner fifth of the training
# rows, at temperature 0.01, in a shorter run.
def tuned_rates(budget, cells):
    """Return a learning rate for each method."""
    if budget.tune_epochs == 0:
        return RATES
    inner, held_out = train_test_split(TRAIN, test_size=0.2, random_state=0, stratify=y[TRAIN])
    short = replace(budget, epochs=budget.tune_epochs, runs=2, thin=50, averaged=30)
    best = {}
    for method, rates in GRID.items():
        scores = []
        for rate in rates:
            found = cells(f"tune {method} rate {rate:g}", cell, method, rate, 0.01, short, inner, held_out)
            scores.append(found["test"][-short.averaged :].mean())
        best[method] = rates[int(np.argmax(scores))]
        print(f"  {method}: " + ", ".join(f"{rate:g} {score:.4f}" for rate, score in zip(rates, scores, strict=True)))
    return best


# %%
# The tables and the error curves
# -------------------------------
def report(found, budget):
    """Print the table of one temperature."""
    rows = []
    for (method, rate), part in found.items():
        last = slice(-budget.averaged, None)
        rows.append(
            [
                method,
                f"{rate:g}",
                with_error(100 * part["train"][last].mean(axis=0), 2),
                with_error(100 * part["test"][last].mean(axis=0), 2),
                with_error(100 * part["per_run"][:, 0], 2),
                with_error(part["per_run"][:, 1], 4),
                with_error(part["per_run"][:, 2], 4),
                f"{100 * part['all_runs'][0]:.2f}",
                f"{part['all_runs'][1]:.4f}",
            ]
        )
    head = ["method", "learning rate", "train %, draws", "test %, draws", "test %, average", "log loss", "ECE"]
    table([*head, "test %, all runs", "log loss, all runs"], rows)


def draw_curves(ax, found, budget):
    """Draw the test error of single draws against steps, averaged over runs."""
    best = {}
    for (method, _), part in found.items():
        score = part["test"][-budget.averaged :].mean()
        if method not in OPTIMISERS and (method not in best or score > best[method][0]):
            best[method] = score, part["steps"], part["test"]
    for method, (_, steps, test) in best.items():
        smooth = max(1, len(test) // 30)
        error = 100 * (1 - test.mean(axis=1))
        error = np.convolve(error, np.ones(smooth) / smooth, mode="valid")
        ax.plot(steps[smooth - 1 :] / 1000, error, label=method, **style(list(METHODS).index(method)))
    ax.set(xlabel="steps, thousands", ylabel="test error of a draw, %")


def main(argv=None):
    """Run the experiment."""
    budget, output = parse(__doc__, Budget(), FULL, argv)
    cells = Cells(output, "landsat_table", budget)
    rates = tuned_rates(budget, cells)
    figure, axes = plt.subplots(2, figsize=(5.6, 8), sharex=True, sharey=True, layout="constrained")
    for ax, temperature in zip(axes, (0.01, 1.0), strict=True):
        found = {}
        for method in METHODS:
            if method in OPTIMISERS and temperature == 1.0:
                continue
            for rate in GRID["SGLD"] if method == "SGLD" else (rates[method],):
                name = f"{method} rate {rate:g} temperature {temperature:g}"
                found[method, rate] = cells(name, cell, method, rate, temperature, budget, TRAIN, TEST)
        print(f"\nTemperature {temperature:g}; {budget.epochs} epochs, mean (standard error) of {budget.runs} runs")
        report(found, budget)
        draw_curves(ax, found, budget)
        ax.set_title(f"temperature {temperature:g}")
    axes[0].set_xlabel("")
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, title="at its best learning rate", loc="outside lower center", ncols=3, fontsize="small")
    cells.save(figure, "landsat_table")


if __name__ == "__main__":
    main()
