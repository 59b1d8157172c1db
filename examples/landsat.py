"""
Landsat scenes: who is right, and who knows it
==============================================

Classify the centre pixel of 3 x 3 pixel neighbourhoods in a satellite image into six kinds of ground, on the published split
(4,435 training and 2,000 test rows of 36 features). Three samplers stand beside scikit-learn's MLPClassifier and an ensemble of
ten of them; a grid search looks at bias factor and temperature; and two figures show that the rows on which the posterior draws
disagree are the rows that the model gets wrong.

The script takes two to three minutes on two cores, and is shown here without being run, with the figures that it makes.

.. image:: /images/landsat_rejection.png
   :alt: accuracy on the rest against the share of rows left out

.. image:: /images/landsat_errors.png
   :alt: share of wrong rows by tenth of the spread
"""

# sphinx_gallery_thumbnail_path = "images/landsat_rejection.png"

# %%
# The data, and one table for all models
# --------------------------------------
import time
import warnings

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier
from sklearn_sgmcmc.datasets import load_landsat
from sklearn_sgmcmc.metrics import expected_calibration_error

landsat = load_landsat()
X_train, y_train = landsat.data[landsat.train_indices], landsat.target[landsat.train_indices]
X_test, y_test = landsat.data[landsat.test_indices], landsat.target[landsat.test_indices]
classes = np.unique(y_train)


def report(name, proba, seconds):
    accuracy = np.mean(classes[proba.argmax(axis=1)] == y_test)
    error = expected_calibration_error(y_test, proba, labels=classes)
    print(f"{name:<28}{accuracy:>9.4f}{log_loss(y_test, proba):>10.4f}{error:>8.4f}{seconds:>9.1f}", flush=True)


print(f"{'':<28}{'accuracy':>9}{'log loss':>10}{'ECE':>8}{'seconds':>9}")

# %%
# Three samplers, four chains each
# --------------------------------
# 16,000 steps of 64 rows after a warm-up, the second half of them kept as 50 draws per chain. Each sampler takes its own step size
# (``learning_rate=None``), which is cut where the curvature of the posterior demands it.
models = {}
for sampler in ("msgld", "sgld", "sghmc"):
    start = time.perf_counter()
    model = BayesianMLPClassifier((30, 30), sampler=sampler, learning_rate=None, random_state=0)
    models[sampler] = model.fit(X_train, y_train)
    proba = models[sampler].predict_proba(X_test)
    report(f"Bayesian MLP, {sampler}", proba, time.perf_counter() - start)


# %%
# scikit-learn's MLP, alone and ten together
# ------------------------------------------
def fit_mlp(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its 200 epochs of Adam end before the loss is flat
        return make_pipeline(StandardScaler(), MLPClassifier((30, 30), random_state=seed)).fit(X_train, y_train)


start = time.perf_counter()
single = fit_mlp(0)
report("MLPClassifier", single.predict_proba(X_test), time.perf_counter() - start)
start = time.perf_counter()
ensemble = Parallel(n_jobs=2)(delayed(fit_mlp)(seed) for seed in range(10))
mean_proba = np.mean([mlp.predict_proba(X_test) for mlp in ensemble], axis=0)
report("ten MLPClassifiers", mean_proba, time.perf_counter() - start)

# %%
# A grid over bias factor and temperature
# ---------------------------------------
# Short runs, whose chains have not mixed: only their scores are compared. The posterior of printed MSGLD has temperature
# ``temperature / (1 + bias_factor)``.
warnings.filterwarnings("ignore", "The (chains have not mixed|noise of the minibatches)", ConvergenceWarning)
start = time.perf_counter()
pipe = make_pipeline(StandardScaler(), BayesianMLPClassifier((30, 30), sampler="msgld", max_iter=40, n_draws=25, random_state=0))
grid = {"bayesianmlpclassifier__bias_factor": [0, 1, 3], "bayesianmlpclassifier__temperature": [0.01, 0.1, 1]}
folds = StratifiedKFold(3, shuffle=True, random_state=0)
search = GridSearchCV(pipe, grid, cv=folds, scoring="neg_log_loss", n_jobs=2, refit=False).fit(X_train, y_train)
scores = -search.cv_results_["mean_test_score"].reshape(3, 3)
print(f"\ncross-validated log loss of short runs ({time.perf_counter() - start:.0f} s)")
print("bias factor   " + "".join(f"  T = {temperature:<6}" for temperature in (0.01, 0.1, 1)))
for bias_factor, row in zip((0, 1, 3), scores, strict=True):
    print(f"{bias_factor:>11}   " + "".join(f"{score:>10.4f}  " for score in row))

# %%
# Which rows to leave to a person?
# --------------------------------
# Sort the test rows by the standard deviation of ``predict_proba`` over draws, or by the confidence of the MLP, and leave the
# most doubtful ones out.
import matplotlib.pyplot as plt  # noqa: E402

proba, std = models["msgld"].predict_proba(X_test, return_std=True)
predicted = proba.argmax(axis=1)
spread = std[np.arange(len(std)), predicted]
right = classes[predicted] == y_test
mlp_proba = single.predict_proba(X_test)
mlp_right = classes[mlp_proba.argmax(axis=1)] == y_test


def accuracy_after_rejection(doubt, right):
    by_doubt = right[np.argsort(doubt, kind="stable")]
    return np.cumsum(by_doubt) / np.arange(1, len(by_doubt) + 1)


rejection, top = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
rejected = 100 * (1 - np.arange(1, len(y_test) + 1) / len(y_test))
kept = np.arange(1, len(y_test) + 1) >= 100
top.plot(rejected[kept], 100 * accuracy_after_rejection(spread, right)[kept], color="#0072B2", label="Bayesian MLP, by spread")
top.plot(
    rejected[kept],
    100 * accuracy_after_rejection(1 - mlp_proba.max(axis=1), mlp_right)[kept],
    color="#D55E00",
    linestyle="--",
    label="MLPClassifier, by confidence",
)
top.set(xlabel="test rows left out, %", ylabel="accuracy on the rest, %", xlim=(0, 80), title="Leaving out the doubtful rows")
top.legend(loc="lower right")
top.grid(alpha=0.3)
bins = np.quantile(spread, np.linspace(0, 1, 11))
tenth = np.clip(np.searchsorted(bins, spread, side="right") - 1, 0, 9)
wrong = [100 * np.mean(~right[tenth == index]) for index in range(10)]
errors, bottom = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
bottom.bar(np.arange(1, 11), wrong, color="#0072B2")
bottom.set(
    xlabel="tenth of the test rows, by spread of predict_proba",
    ylabel="wrong, %",
    xticks=range(1, 11),
    title="Where the errors are",
)
rejection.savefig("landsat_rejection.png", dpi=150)
errors.savefig("landsat_errors.png", dpi=150)
fifth = np.argsort(spread)[-len(spread) // 5 :]
share = np.sum(~right[fifth]) / np.sum(~right)
print(f"\nThe fifth of the test rows with the largest spread holds {share:.0%} of the errors.")
print("Figures: landsat_rejection.png, landsat_errors.png")
