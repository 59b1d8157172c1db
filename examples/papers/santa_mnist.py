"""
Santa on MNIST, at equal epochs
===============================

The 784-400-400-10 network of Chen, Carlson, Gan, Li & Carin 2016, trained by Santa and by Adam, RMSprop, SGD with momentum and SGLD
for equally many epochs of batches of 100. Their published test errors are, from memory and unverified: Santa 1.21 %, Adam 1.53,
RMSprop 1.59, SGD with momentum 1.66, SGLD 1.64.

Santa anneals, then refines at temperature zero; "Santa, as published" has their constants C = 100, sigma = 0.999 and
lambda = 1e-8, "Santa" has the defaults of this package. RMSprop is pSGLD at temperature zero. Every method takes the best of three
learning rates by its accuracy on the last tenth of the training rows, after a run that may be shorter (``--tune-epochs``).

Here the script is shown without being run, as it needs MNIST. The figure is that of the run that :doc:`/papers` records.

.. image:: /images/papers_santa_mnist.png
   :alt: figure of the recorded run
"""

# sphinx_gallery_thumbnail_path = "images/papers_santa_mnist.png"

# %%
# The methods
# -----------
import warnings
from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
import numpy as np
from experiment import Cells, parse, style, table, with_error
from mnist import load_mnist
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from sklearn_sgmcmc import BayesianMLPClassifier
from sklearn_sgmcmc.samplers import PSGLD, SGD, SGLD, Adam, Santa
from sklearn_sgmcmc.schedules import Annealed, Constant


@dataclass(frozen=True)
class Budget:
    """Rows, hidden units per layer, epochs, runs (chains) and where MNIST is."""

    mnist: str = "openml"
    rows: int = 2000
    test_rows: int = 2000
    hidden: int = 100
    epochs: int = 10
    tune_epochs: int = 10
    runs: int = 2
    seed: int = 0


FULL = Budget(rows=60_000, test_rows=10_000, hidden=400, epochs=100, runs=3)
PUBLISHED = Santa(initial_friction=100.0, noise_level=None, decay=0.999, regularizer=1e-8, adapt="always")
METHODS = {
    "Santa": (Santa(adapt="always"), Annealed(), 1.0, (0.0005, 0.002, 0.008)),
    "Santa, as published": (PUBLISHED, Annealed(), 1.0, (1e-5, 1e-4, 1e-3)),
    "Adam": (Adam(), Constant(), None, (3e-4, 1e-3, 3e-3)),
    "RMSprop": (PSGLD(adapt="always"), Constant(), 0.0, (3e-4, 1e-3, 3e-3)),
    "SGD with momentum": (SGD(momentum=0.9), Constant(), None, (0.01, 0.03, 0.1)),
    "SGLD": (SGLD(), Constant(), 1.0, (0.05, 0.1, 0.3)),
}


# %%
# One cell: a method at a learning rate
# -------------------------------------
def cell(method, rate, budget):
    """Return errors on the validation and the test rows: of the last draw of each run and of predictions averaged over draws."""
    sampler, schedule, temperature, _ = METHODS[method]
    X, y, X_test, y_test = load_mnist(budget.mnist, budget.rows, budget.test_rows)
    n_fit = len(X) * 9 // 10
    model = BayesianMLPClassifier(
        (budget.hidden, budget.hidden),
        sampler=sampler,
        schedule=schedule,
        temperature=temperature,
        learning_rate=rate,
        warm_up=0,
        max_iter=budget.epochs,
        batch_size=100,
        n_chains=budget.runs,
        n_draws=10,
        standardize=False,
        random_state=budget.seed,
        verbose=1 if budget.rows > 10_000 else 0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model.fit(X[:n_fit], y[:n_fit])
        except ValueError as error:  # every chain diverged, or a learning rate outside the method's domain
            print(f" ({str(error)[:90]})", end="")
            return {"validation": np.ones(budget.runs), "test": np.ones(budget.runs), "average": 1.0, "log_loss": np.inf}

    def last_errors(inputs, labels):
        proba = model.sample_posterior(inputs)
        last = proba.reshape(*model.draws_.shape[:2], *proba.shape[1:])[-1]
        return (last.argmax(axis=2) != labels).mean(axis=1)

    average = model.predict_proba(X_test).astype(np.float64)
    average /= average.sum(axis=1, keepdims=True)
    return {
        "validation": last_errors(X[n_fit:], y[n_fit:]),
        "test": last_errors(X_test, y_test),
        "average": np.mean(average.argmax(axis=1) != y_test),
        "log_loss": log_loss(y_test, average, labels=np.arange(10)),
    }


def main(argv=None):
    """Run the experiment."""
    budget, output = parse(__doc__, Budget(), FULL, argv)
    cells = Cells(output, "santa_mnist", budget)
    tuning = replace(budget, epochs=budget.tune_epochs)
    rows, bars = [], []
    for method, (_, _, _, rates) in METHODS.items():
        parts = [cells(f"tuning {method} rate {rate:g}", cell, method, rate, tuning) for rate in rates]
        best = int(np.argmin([part["validation"].mean() for part in parts]))
        part = parts[best] if tuning == budget else cells(f"{method} rate {rates[best]:g}", cell, method, rates[best], budget)
        rows.append(
            [
                method,
                f"{rates[best]:g}",
                " ".join(f"{100 * other['validation'].mean():.2f}" for other in parts),
                with_error(100 * part["test"], 2),
                f"{100 * part['average']:.2f}",
                f"{part['log_loss']:.4f}",
            ]
        )
        bars.append((100 * part["test"].mean(), 100 * part["average"]))
    print(f"\n{budget.epochs} epochs of {budget.rows * 9 // 10} rows, {budget.hidden}-{budget.hidden} units, {budget.runs} runs")
    head = ["method", "learning rate", "validation error of the three, %", "test error of the last draw, %"]
    table([*head, "of the average, %", "its log loss"], rows)

    figure, ax = plt.subplots(figsize=(5.5, 4.6), layout="constrained")
    place = np.arange(len(bars))
    for shift, number, label in ((-0.2, 0, "last draw, mean of the runs"), (0.2, 1, "average over draws and runs")):
        color = style(number)["color"]
        ax.barh(place + shift, [bar[number] for bar in bars], 0.38, color=color, label=label, hatch=("", "//")[number])
    ax.set_yticks(place, METHODS)
    ax.invert_yaxis()
    ax.set(xlabel="test error, %", title=f"MNIST, {budget.epochs} epochs of {budget.rows * 9 // 10:,} rows")
    figure.legend(loc="outside lower center")
    cells.save(figure, "santa_mnist")


if __name__ == "__main__":
    main()
