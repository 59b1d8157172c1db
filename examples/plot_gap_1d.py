"""
What the data do not say: a gap in one dimension
=================================================

A regressor sees a curve with a gap in the middle. Its uncertainty has two parts: what more rows would remove (epistemic, the spread
of the function over draws) and what they would not (aleatoric, the noise of the targets). Both are free to change with x here.
"""

# %%
# Sixty rows on either side of the gap
# ------------------------------------
import matplotlib.pyplot as plt
import numpy as np

from sklearn_sgmcmc import BayesianMLPRegressor
from sklearn_sgmcmc.displays import OKABE_ITO, PredictiveBandDisplay

rng = np.random.RandomState(0)
x = np.r_[rng.uniform(-4, -1, 60), rng.uniform(1, 4, 60)]
y = np.sin(1.5 * x) + 0.15 * rng.randn(len(x))
model = BayesianMLPRegressor((30,), activation="tanh", max_iter=8000, random_state=0)
model.fit(x[:, None], y)

# %%
# Bands, and the two parts of the uncertainty
# -------------------------------------------
figure, (top, bottom) = plt.subplots(2, figsize=(5.4, 6.4), sharex=True, height_ratios=(3, 2), layout="constrained")
PredictiveBandDisplay.from_estimator(model, x[:, None], y, ax=top)
grid = np.linspace(-4, 4, 200)
parts = model.predict_uncertainty(grid[:, None])
bottom.plot(grid, np.sqrt(parts.epistemic), color=OKABE_ITO[0], label="epistemic")
bottom.plot(grid, np.sqrt(parts.aleatoric), color=OKABE_ITO[1], linestyle="--", label="aleatoric")
bottom.axhline(0.15, color="0.45", linestyle=":", label="true noise")
bottom.axvspan(-1, 1, color="0.92", label="no data")
bottom.set(xlabel="x", ylabel="standard deviation, units of y", ylim=(0, 0.55))
bottom.legend(ncols=2)
top.set_xlabel("")

seen = model.predict_uncertainty(x[:, None])
gap = model.predict_uncertainty(np.linspace(-0.8, 0.8, 50)[:, None])
growth = {name: np.sqrt(gap[name].mean() / seen[name].mean()) for name in ("epistemic", "aleatoric")}
print(
    f"In the gap the epistemic part is {growth['epistemic']:.1f} times that on the data, the aleatoric {growth['aleatoric']:.1f}."
)
plt.show()

# %%
# Where there are no data the draws disagree and the epistemic part grows several times over; the noise level grows far less.
