"""
Noise that depends on x
=======================

One noise level for all rows is too wide where the targets are exact and too narrow where they are not. A second output of the
network learns the level at each x. Proper scores on fresh rows tell whether that pays.
"""

# %%
# Targets whose noise grows with x
# --------------------------------
import matplotlib.pyplot as plt
import numpy as np

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.displays import PredictiveBandDisplay
from sklearn_sgmcmc.metrics import coverage_scorer, log_density_scorer, neg_crps_scorer


def rows(n_rows, seed):
    rng = np.random.RandomState(seed)
    x = rng.uniform(0, 4, n_rows)
    return x[:, None], np.sin(2 * x) + (0.03 + 0.15 * x) * rng.randn(n_rows)


X, y = rows(300, 0)
X_test, y_test = rows(1000, 1)

# %%
# One level or one for each x
# ---------------------------
figure, axes = plt.subplots(2, figsize=(5.4, 7.2), sharex=True, sharey=True, layout="constrained")
print(f"{'noise':<18}{'log density':>12}{'CRPS':>8}{'coverage, x < 2':>17}{'x > 2':>8}")
left = X_test[:, 0] < 2
for ax, noise in zip(axes, ("homoscedastic", "heteroscedastic"), strict=True):
    model = BayesianMLPRegressor((30,), activation="tanh", noise=noise, max_iter=3000, random_state=0).fit(X, y)
    covered = [coverage_scorer(model, X_test[side], y_test[side]) for side in (left, ~left)]
    scores = log_density_scorer(model, X_test, y_test), -neg_crps_scorer(model, X_test, y_test)
    print(f"{noise:<18}{scores[0]:>12.3f}{scores[1]:>8.3f}{covered[0]:>17.2f}{covered[1]:>8.2f}")
    PredictiveBandDisplay.from_estimator(model, X, y, ax=ax)
    ax.set_title(f'noise="{noise}"', loc="left", fontsize="medium", y=0.88, x=0.02)
axes[1].get_legend().remove()
axes[0].set_xlabel("")
plt.show()

# %%
# With a noise level for each x, the default for so many rows, the 90 % intervals hold about nine targets in ten on both sides, and
# log density and CRPS improve.
