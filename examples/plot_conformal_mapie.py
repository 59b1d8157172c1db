"""
Conformal intervals around a Bayesian regressor
===============================================

Predictive intervals have the right coverage if the model is right. Here it is not: the noise is skewed, the model's Gaussian.
Conformal prediction guarantees the coverage with a few hundred rows that were held back. MAPIE (``pip install mapie``) takes the
regressor as it is; its plain scores give intervals of one width, and residuals in units of the predictive standard deviation keep
the shape of the posterior's.
"""

# %%
# Skewed noise that grows with x
# ------------------------------
import matplotlib.pyplot as plt
import numpy as np
from mapie.regression import SplitConformalRegressor

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.displays import OKABE_ITO
from sklearn_sgmcmc.metrics import interval_coverage, interval_score, interval_width


def rows(n_rows, seed):
    rng = np.random.RandomState(seed)
    x = np.sort(rng.uniform(0, 4, n_rows))
    return x[:, None], np.sin(2 * x) + (0.1 + 0.2 * x) * (rng.lognormal(0, 1, n_rows) - np.exp(0.5))


X, y = rows(400, 0)
X_held, y_held = rows(400, 1)
X_test, y_test = rows(2000, 2)
model = BayesianMLPRegressor((30,), activation="tanh", max_iter=6000, random_state=0).fit(X, y)

# %%
# Three kinds of 90 % interval
# ----------------------------
# The last kind takes three lines: scale the residuals, take their quantile with the correction for a finite sample, scale back.
conformal = SplitConformalRegressor(model, confidence_level=0.9, prefit=True).conformalize(X_held, y_held)
bounds = conformal.predict_interval(X_test)[1][:, :, 0]

mean_held, std_held = model.predict(X_held, return_std=True)
level = np.ceil(0.9 * (len(y_held) + 1)) / len(y_held)
factor = np.quantile(np.abs(y_held - mean_held) / std_held, level, method="higher")
mean, std = model.predict(X_test, return_std=True)

intervals = {
    "posterior": model.predict_interval(X_test, 0.9),
    "MAPIE": (bounds[:, 0], bounds[:, 1]),
    "conformal, scaled": (mean - factor * std, mean + factor * std),
}

# %%
# Coverage where the noise is small and where it is large
# -------------------------------------------------------
figure, axes = plt.subplots(3, figsize=(5.4, 8), sharex=True, sharey=True, layout="constrained")
left = X_test[:, 0] < 2
print(f"{'':<20}{'coverage':>9}{'x < 2':>8}{'x > 2':>8}{'width':>8}{'score':>8}")
for ax, color, (name, (lower, upper)) in zip(axes, OKABE_ITO, intervals.items(), strict=False):
    covered = [interval_coverage(y_test[side], lower[side], upper[side]) for side in (slice(None), left, ~left)]
    line = "{:>9.3f}{:>8.3f}{:>8.3f}".format(*covered)
    print(f"{name:<20}{line}{interval_width(lower, upper):>8.2f}{interval_score(y_test, lower, upper):>8.2f}")
    ax.fill_between(X_test[:, 0], lower, upper, color=color, alpha=0.3)
    ax.plot(X_test[::4, 0], y_test[::4], ".", color="0.3", markersize=2)
    ax.set(ylabel="y", ylim=(-4, 7))
    ax.set_title(f"{name}: {covered[1]:.0%} of targets for x < 2, {covered[2]:.0%} for x > 2", fontsize="medium")
axes[-1].set_xlabel("x")
plt.show()

# %%
# All three hold about nine targets in ten, but those of one width hold too many where the noise is small and too few where it is
# large. Scaled by the posterior, conformal intervals follow the noise, are the narrowest and have the best score.
