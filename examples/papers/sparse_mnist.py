"""
Sparse MNIST: a prior that switches
===================================

The sparse network of Kim, Song & Liang 2020: 784-800-800-10, batches of 100, 100 epochs with the prior N(0, 1) and 150 with a spike
and slab, three runs; accuracy and sparsity ratio (the share of connection weights kept) averaged over the last five epochs, for
ASGLD, MSGLD and Adam. The constants of the prior are lost: here they are chosen, by short runs, for the accuracy of the pruned
predictions on the last tenth of the training rows, among spikes that the step size can resolve: eps < s0^2 and
sqrt(2 eps tau) < s0.

Stage II has hyperparameters of its own, as in the paper: two stages of one run, each with its sampler, step size, temperature and
prior. Adam keeps the prior N(0, 1), also as in the paper: its sparsity, counted at the same threshold, is no result of its own.

Here the script is shown without being run, as it needs MNIST. The figure is that of the run that :doc:`/papers` records.

.. image:: /images/papers_sparse_mnist.png
   :alt: figure of the recorded run
"""

# sphinx_gallery_thumbnail_path = "images/papers_sparse_mnist.png"

# %%
# The methods in both stages
# --------------------------
from dataclasses import dataclass, replace
from functools import lru_cache

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Cells, parse, style, table, with_error
from mnist import load_mnist

from sklearn_sgmcmc.batches import Batches, DenseRows, RowSet
from sklearn_sgmcmc.engine import Stage, run
from sklearn_sgmcmc.likelihoods import Categorical
from sklearn_sgmcmc.network import MLP, with_constant
from sklearn_sgmcmc.noise import BlockNoise, noise_generators, row_generators
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import Normal, SpikeSlab
from sklearn_sgmcmc.samplers import ASGLD, MSGLD, Adam
from sklearn_sgmcmc.schedules import Timeline


@dataclass(frozen=True)
class Budget:
    """Rows, hidden units per layer, epochs of both stages, runs and where MNIST is; epochs of the runs that choose the prior."""

    mnist: str = "openml"
    rows: int = 2000
    test_rows: int = 2000
    hidden: int = 100
    dense_epochs: int = 8
    sparse_epochs: int = 12
    tune_dense_epochs: int = 8
    tune_sparse_epochs: int = 12
    runs: int = 2
    seed: int = 0


FULL = Budget(
    rows=60_000,
    test_rows=10_000,
    hidden=800,
    dense_epochs=100,
    sparse_epochs=150,
    tune_dense_epochs=4,
    tune_sparse_epochs=6,
    runs=3,
)
BATCH = 100
METHODS = {  # (sampler, learning rate, temperature) of stages I and II
    "MSGLD": ((MSGLD(smoothing=0.99), 0.1, 1.0), (MSGLD(smoothing=0.99), 0.1, 0.01)),
    "ASGLD": ((ASGLD(bias_factor=0.01), 0.1, 1.0), (ASGLD(bias_factor=0.001), 0.1, 0.01)),
    "Adam": ((Adam(), 0.001, 0.0), (Adam(), 0.0003, 0.0)),
}


def priors(n_rows):
    """Return the spikes and slabs that are tried: s0 is 2 or 4 times the least that stage II resolves, whose tau is below 1/2."""
    least = (0.1 / n_rows) ** 0.5
    spikes = [k * least for k in (2.0, 4.0) if k * least < 0.1]
    return [SpikeSlab(0.1, spike_scale=spike, slab_probability=share) for spike in spikes for share in (0.01, 0.1)]


# %%
# One run in two stages
# ---------------------
def described(prior):
    """Return the constants that are chosen."""
    return f"s0 {prior.spike_scale:.2g} lambda {prior.slab_probability:g}"


def timeline(n_steps, steps_per_epoch, last_epochs):
    """Return a stage that keeps the state at the end of each of its last epochs."""
    collect = np.zeros(n_steps, dtype=bool)
    for epoch in range(last_epochs):
        collect[max(0, n_steps - 1 - epoch * steps_per_epoch)] = True
    return Timeline(np.ones(n_steps), np.ones(n_steps), ~collect, collect)


@lru_cache(maxsize=1)
def data(budget):
    """Return training, validation and test rows: inputs and labels of each."""
    X, y, X_test, y_test = load_mnist(budget.mnist, budget.rows, budget.test_rows)
    split = len(X) * 9 // 10
    return (X[:split], y[:split]), (X[split:], y[split:]), (X_test, y_test)


def cell(method, prior, budget):
    """Return the accuracies of each run, pruned and not, averaged over the last epochs, and the share of weights kept."""
    (X, y), validation, test = data(budget)
    network, likelihood, n = MLP((784, budget.hidden, budget.hidden, 10), "relu"), Categorical(10), float(len(X))
    steps_per_epoch = -(-len(X) // BATCH)
    stages, lengths, after = [], (budget.dense_epochs, budget.sparse_epochs), Normal() if method == "Adam" else prior
    for (sampler, rate, tau), epochs, placed, kept in zip(METHODS[method], lengths, (Normal(), after), (0, 5), strict=True):
        plan = timeline(epochs * steps_per_epoch, steps_per_epoch, min(kept, epochs))
        step_size = rate if sampler.step_is_learning_rate else rate / n
        stages.append(Stage(sampler, plan, Posterior(network, likelihood, placed, n, n), step_size, tau))
    source = DenseRows(torch.from_numpy(X), torch.nn.functional.one_hot(torch.from_numpy(y), 10).float(), torch.ones(len(X)))
    chains, device = range(budget.runs), torch.device("cpu")
    batches = Batches(source, [RowSet(0, len(X))] * budget.runs, BATCH, row_generators((budget.seed,), chains, device))
    noise = BlockNoise(noise_generators((budget.seed,), range(-(-budget.runs // 4)), device))
    theta = noise(torch.empty(budget.runs, network.n_params)) * stages[0].posterior.initial_scale().float()
    found = run(stages, theta, batches, noise, verbose=int(budget.rows > 10_000), steps_per_epoch=steps_per_epoch).draws

    threshold = Posterior(network, likelihood, prior, n, n).threshold().float()
    keep = found.abs() >= threshold
    pruned = torch.where(keep, found, 0.0)
    result = {"sparsity": keep[:, :, network.layout().is_weight].double().mean(dim=(0, 2)).numpy()}
    for name, weights in (("dense", found), ("pruned", pruned)):
        for split, (inputs, labels) in (("validation", validation), ("test", test)):
            result[f"{name}_{split}"] = accuracies(network, weights, inputs, labels)
    return result


def accuracies(network, draws, inputs, labels):
    """Return the accuracy of each run, averaged over its draws (S, C, P)."""
    x = with_constant(torch.from_numpy(inputs))[None]
    right = [(network.forward(theta[None], x)[0][0].argmax(dim=0).numpy() == labels).mean() for theta in draws.flatten(0, 1)]
    return np.reshape(right, draws.shape[:2]).mean(axis=0)


def main(argv=None):
    """Run the experiment."""
    budget, output = parse(__doc__, Budget(), FULL, argv)
    cells = Cells(output, "sparse_mnist", budget)
    tuning = replace(budget, dense_epochs=budget.tune_dense_epochs, sparse_epochs=budget.tune_sparse_epochs, runs=1)
    rows, clouds = [], {}
    for method in METHODS:
        tried = priors(budget.rows * 9 // 10)
        tuned = tried if method != "Adam" else []  # Adam has no spike: one threshold will do to count with
        found = [cells(f"tuning {method} {described(prior)}", cell, method, prior, tuning) for prior in tuned]
        scores = [part["pruned_validation"].mean() for part in found]
        prior = tried[int(np.argmax(scores)) if found else 0]
        part = cells(f"{method} {described(prior)}", cell, method, prior, budget)
        clouds[method] = [(100 * cell["sparsity"].mean(), 100 * cell["pruned_test"].mean()) for cell in [*found, part]]
        rows.append(
            [
                method,
                f"{prior.spike_scale:.2g}, {prior.scale:g}, {prior.slab_probability:g}",
                " ".join(f"{100 * score:.1f}" for score in scores),
                *(with_error(100 * part[key], 2) for key in ("dense_test", "pruned_test", "sparsity")),
            ]
        )
    print(f"\n784-{budget.hidden}-{budget.hidden}-10, {budget.dense_epochs} + {budget.sparse_epochs} epochs, {budget.runs} runs")
    head = ["method", "s0, s1, lambda", "pruned validation accuracy of each prior, %", "test accuracy, %"]
    table([*head, "pruned test accuracy, %", "weights kept, %"], rows)

    figure, ax = plt.subplots(figsize=(5.4, 4.4), layout="constrained")
    for number, (method, cloud) in enumerate(clouds.items()):
        marks = {"marker": "os^"[number], "markersize": 8, "color": style(number)["color"], "linestyle": "none"}
        ax.plot(*zip(*cloud[-1:], strict=True), **marks, label=method)
        if cloud[:-1]:
            ax.plot(*zip(*cloud[:-1], strict=True), **marks, markerfacecolor="none", label=f"{method}, choice of the prior")
    ax.set(xlabel="connection weights kept, %", ylabel="test accuracy of the pruned network, %", xscale="log")
    ax.set_title("Mean of the runs")
    ax.legend()
    cells.save(figure, "sparse_mnist")


if __name__ == "__main__":
    main()
