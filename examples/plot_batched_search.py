"""
A search in batches: how wide a prior, how warm a posterior?
============================================================

The fits of all candidates and folds of a grid search run as chains of a few batches. Here the scale of the prior and the
temperature are searched over on the breast cancer data, transformers in front.
"""

# %%
# Twenty candidates on five folds
# -------------------------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_sgmcmc import BatchedGridSearchCV, BayesianMLPClassifier

X, y = load_breast_cancer(return_X_y=True)
net = BayesianMLPClassifier((10,), sampler="sgld", batch_size=32, max_iter=25, random_state=0)
pipe = make_pipeline(StandardScaler(), PCA(10), net)
scales, temperatures = [0.1, 0.3, 1, 3], [0.01, 0.1, 1, 3, 10]
grid = {"bayesianmlpclassifier__prior_scale": scales, "bayesianmlpclassifier__temperature": temperatures}
search = BatchedGridSearchCV(pipe, grid, scoring={"log loss": "neg_log_loss", "accuracy": "accuracy"}, refit="log loss", cv=5)
search.fit(X, y)

# %%
# The map of log losses
# ---------------------
results = search.cv_results_
loss = -results["mean_test_log loss"].reshape(len(scales), len(temperatures))
error = results["std_test_log loss"].reshape(loss.shape) / np.sqrt(search.n_splits_)
best = np.unravel_index(loss.argmin(), loss.shape)

figure, ax = plt.subplots(figsize=(5.4, 4), layout="constrained")
image = ax.imshow(loss, cmap="viridis_r")
middle = (loss.min() + loss.max()) / 2
for (row, column), value in np.ndenumerate(loss):
    text = f"{value:.3f}\n±{error[row, column]:.3f}"
    weight = "bold" if (row, column) == best else "normal"
    ax.text(column, row, text, ha="center", va="center", weight=weight, color="white" if value > middle else "black", fontsize=9)
ax.set(xlabel="temperature", ylabel="prior scale", title="Held-out log loss (± standard error)")
ax.set_xticks(range(len(temperatures)), temperatures)
ax.set_yticks(range(len(scales)), scales)
figure.colorbar(image, ax=ax, label="log loss, nats")

print(f"{len(results['params'])} candidates on {search.n_splits_} folds; {results['mean_fit_time'].mean():.2f} s for each fit")
print(f"best: {search.best_params_}, log loss {-search.best_score_:.3f}")
plt.show()

# %%
# A narrow prior costs most. From scale 1 on temperature 0.1 is ahead, of its neighbours by one to three standard errors, and warmer
# posteriors are worse.
