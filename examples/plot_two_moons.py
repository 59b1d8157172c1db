"""
Two moons: where a classifier should doubt
==========================================

Between two classes that overlap the label is uncertain whatever the weights; far from all rows the weights are uncertain. The draws
of a Bayesian network tell the two apart. They are drawn from the posterior itself, by a sampler with the law "small step":
the default of classifiers has half its temperature, and is surer.
"""

# %%
# Fit, and choose three places
# ----------------------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier
from sklearn_sgmcmc.displays import DecisionMapDisplay, ProbabilitySpreadDisplay

X, y = make_moons(300, noise=0.25, random_state=0)
net = BayesianMLPClassifier((30,), sampler="sghmc", max_iter=4000, random_state=0)
model = make_pipeline(StandardScaler(), net).fit(X, y)
places = np.array([[-0.5, 1.0], [0.5, 0.2], [2.6, 2.2]])
names = ["A, inside", "B, between", "C, far away"]

# %%
# The map, and the probabilities at the three places
# --------------------------------------------------
wide = np.vstack([X, [[-2.2, -1.8], [3.2, 2.6]]])  # look beyond the rows
figure, (top, bottom) = plt.subplots(2, figsize=(5.4, 8), height_ratios=(3, 2), layout="constrained")
DecisionMapDisplay.from_estimator(model, wide, ax=top)
for label in (0, 1):
    top.scatter(*X[y == label].T, s=14, color=("#0072B2", "#D55E00")[label], edgecolor="white", linewidth=0.4, label=label)
top.legend(title="class", loc="lower right")
for name, (x0, x1) in zip("ABC", places, strict=True):
    top.annotate(name, (x0, x1), ha="center", va="center", weight="bold", bbox={"boxstyle": "circle", "facecolor": "white"})
ProbabilitySpreadDisplay.from_estimator(model, places, ax=bottom)
bottom.set_xticks(range(3), [name.replace(", ", "\n") for name in names])
bottom.set_xlabel("")

parts = model[-1].predict_uncertainty(model[:-1].transform(places))
print(f"{'nats':<22}{'aleatoric':>10}{'epistemic':>10}")
for name, aleatoric, epistemic in zip(names, parts.aleatoric, parts.epistemic, strict=True):
    print(f"{name:<22}{aleatoric:>10.3f}{epistemic:>10.3f}")
plt.show()

# %%
# Between the moons the draws agree that the label is open; far away they disagree, and only there is the doubt mostly epistemic.
