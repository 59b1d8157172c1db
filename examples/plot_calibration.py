"""
Is 80 % right in 80 % of the rows?
==================================

Probabilities are good if they are sharp and if they can be believed. Reliability curves compare a Bayesian network, sampled from
its posterior, as is the default here, and at half its temperature, scikit-learn's MLPClassifier and a random forest on rows that
none of them has seen; log loss and Brier loss tell which is best as a whole. Here 15 % of the labels are drawn at random.
"""

# %%
# Four models of noisy labels
# ---------------------------
import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier
from sklearn_sgmcmc.displays import ReliabilityDisplay
from sklearn_sgmcmc.metrics import neg_brier_loss_scorer, neg_calibration_error_scorer, neg_log_loss_scorer

X, y = make_classification(6000, 15, n_informative=6, n_classes=3, n_clusters_per_class=2, flip_y=0.15, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=900, random_state=0)
models = {
    "Bayesian, default": BayesianMLPClassifier((50,), random_state=0),
    "Bayesian, colder": BayesianMLPClassifier((50,), sampler="msgld", random_state=0),
    "MLPClassifier": make_pipeline(StandardScaler(), MLPClassifier((50,), max_iter=500, random_state=0)),
    "RandomForestClassifier": RandomForestClassifier(300, random_state=0),
}

# %%
# One panel each
# --------------
figure, axes = plt.subplots(4, figsize=(5.4, 12), layout="constrained")
print(f"{'':<26}{'accuracy':>9}{'log loss':>10}{'Brier':>8}{'ECE':>8}")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the MLP's 500 epochs end before its loss is flat
        model.fit(X_train, y_train)
    losses = [
        -scorer(model, X_test, y_test) for scorer in (neg_log_loss_scorer, neg_brier_loss_scorer, neg_calibration_error_scorer)
    ]
    print(f"{name:<26}{model.score(X_test, y_test):>9.3f}" + "{:>10.3f}{:>8.3f}{:>8.3f}".format(*losses))
    ReliabilityDisplay.from_estimator(model, X_test, y_test, name=name, ax=ax)
plt.show()

# %%
# The MLP is far too sure and the forest, the most accurate of the four, not sure enough. The confidence of draws from the posterior
# can be read nearly as it stands. Printed MSGLD has half their temperature: that pays where labels are right, and is somewhat too
# sure where so many are wrong.
