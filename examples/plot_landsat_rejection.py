"""
Landsat: leave the doubtful pixels to a person
==============================================

Six kinds of ground in a satellite image, on the published split: 4,435 training and 2,000 test rows of 36 features. A Bayesian
network says of each row how sure it is. If the least sure rows go to a person, how accurate is it on the rest?
"""

# %%
# Fit, and split the doubt about each test row
# --------------------------------------------
import matplotlib.pyplot as plt
import numpy as np

from sklearn_sgmcmc import BayesianMLPClassifier
from sklearn_sgmcmc.datasets import load_landsat
from sklearn_sgmcmc.displays import RejectionDisplay

landsat = load_landsat()
X_train, y_train = landsat.data[landsat.train_indices], landsat.target[landsat.train_indices]
X_test, y_test = landsat.data[landsat.test_indices], landsat.target[landsat.test_indices]
model = BayesianMLPClassifier((30,), max_iter=100, random_state=0).fit(X_train, y_train)
right = model.predict(X_test) == y_test
parts = model.predict_uncertainty(X_test)

# %%
# Accuracy on the rows that are kept
# ----------------------------------
figure, (top, bottom) = plt.subplots(2, figsize=(5.4, 8), height_ratios=(3, 2), layout="constrained")
RejectionDisplay.from_estimator(model, X_test, y_test, name="by total uncertainty", ax=top)
RejectionDisplay.from_estimator(
    model, X_test, y_test, uncertainty="epistemic", name="by epistemic uncertainty", ax=top, color="#D55E00", linestyle="--"
)

bins = np.linspace(0, parts.total.max(), 16)
for some, label, style in ((right, "right", {"color": "#0072B2"}), (~right, "wrong", {"color": "#D55E00", "linestyle": "--"})):
    bottom.hist(parts.total[some], bins, histtype="step", linewidth=2, label=f"predicted {label}", **style)
bottom.set(xlabel="total uncertainty, nats", ylabel="test rows", yscale="log")
bottom.legend()

order = np.argsort(parts.total)
print(f"{'rows left out':>14}{'accuracy on the rest':>22}")
for share in (0.0, 0.1, 0.2, 0.3):
    kept = order[: round((1 - share) * len(order))]
    print(f"{share:>14.0%}{right[kept].mean():>22.3f}")
plt.show()

# %%
# Of all rows the network gets one in ten wrong; with the least sure fifth left to a person, about one in thirty of the rest.
