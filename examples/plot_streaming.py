"""
A stream whose target jumps
===========================

Rows come in chunks and are not kept. The slope of the target jumps now and then, by a slow Markov chain. ``partial_fit`` tracks it:
its posterior is that of the rows in a window of about 1 / learning_rate chunks, and never claims more.
"""

# %%
# Two memories
# ------------
import matplotlib.pyplot as plt
import numpy as np

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.displays import OKABE_ITO

rng = np.random.RandomState(0)
slope, slopes = 1.0, []
shared = {"prior": "normal", "noise": 1.0, "sampler": "sgld", "n_chains": 16, "random_state": 0}
models = {memory: BayesianMLPRegressor((), learning_rate=1 / memory, **shared) for memory in (5, 20)}
tracked = {memory: [] for memory in models}
for _ in range(300):
    slope = rng.choice([-1.0, 1.0, 0.0]) if rng.rand() < 0.02 else slope
    X = rng.randn(50, 1)
    y = slope * X[:, 0] + rng.randn(50)
    slopes.append(slope)
    for memory, model in models.items():
        model.partial_fit(X, y)
        at_one_and_zero = model.sample_posterior([[1.0], [0.0]])  # the conditional mean at each draw
        found = at_one_and_zero[:, 0] - at_one_and_zero[:, 1]
        tracked[memory].append((found.mean(), found.std()))

# %%
# What each knows of the slope
# ----------------------------
figure, axes = plt.subplots(2, figsize=(5.4, 5.0), sharex=True, sharey=True, layout="constrained")
chunks = np.arange(300)
for ax, color, (memory, found) in zip(axes, OKABE_ITO, tracked.items(), strict=False):
    mean, sd = np.array(found).T
    ax.fill_between(chunks, mean - 2 * sd, mean + 2 * sd, color=color, alpha=0.3, linewidth=0, label="mean and 2 sd of the draws")
    ax.plot(chunks, mean, color=color)
    ax.step(chunks, slopes, color="0.2", linewidth=1, where="post", label="true slope")
    ax.set(ylabel="slope", title=f"memory of {memory} chunks, {50 * memory} rows")
    ax.set_ylim(-1.7, 1.7)
    ax.legend(loc="lower center", fontsize="small", ncols=2)
axes[1].set_xlabel("chunk of 50 rows")
for model in models.values():
    print(model.diagnostics().law)
plt.show()

# %%
# A short memory follows a jump at once and knows the slope less well at rest: its band is that of 250 rows. A long one has four
# times the rows and half the band at rest, but takes four times as long to forget; on the way its draws, which are from the last 20
# steps, spread over where it was.
