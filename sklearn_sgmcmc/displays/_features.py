"""Predictions over the one or two features of the training rows, and beyond."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from sklearn_sgmcmc._checks import check_integer
from sklearn_sgmcmc.displays._base import OKABE_ITO, Display
from sklearn_sgmcmc.metrics import unwrap

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.colorbar import Colorbar
    from matplotlib.lines import Line2D


@dataclass(eq=False, kw_only=True)
class DecisionMapDisplay(Display):
    """Decision regions of a classifier of two features, fading to dark where the draws disagree.

    Parameters
    ----------
    x0, x1 : ndarrays of shape (n_grid,)
        Grid of the two features.
    decision : ndarray of shape (n_grid, n_grid)
        Index of the most probable class; rows along ``x1``.
    epistemic : ndarray of shape (n_grid, n_grid)
        Mutual information of class and weights, in nats.
    classes : ndarray of shape (n_classes,)
        Labels.
    points : tuple of ndarrays (x0, x1, class index), or None
        Rows to draw on the map.
    feature_names : tuple of two str
        Labels of the axes.

    Attributes
    ----------
    regions_, shade_ : AxesImage
    points_ : list of matplotlib artists, one per class
    colorbar_ : Colorbar
    ax_, figure_ : Axes, Figure

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> X, y = make_moons(60, noise=0.2, random_state=0)
    >>> model = BayesianMLPClassifier((5,), sampler="sgld", max_iter=300, n_draws=20, random_state=0).fit(X, y)
    >>> DecisionMapDisplay.from_estimator(model, X, y, n_grid=20).decision.shape
    (20, 20)
    """

    x0: NDArray[np.float64]
    x1: NDArray[np.float64]
    decision: NDArray[np.int64]
    epistemic: NDArray[np.float64]
    classes: NDArray[Any]
    points: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]] | None = None
    feature_names: tuple[str, str] = ("feature 0", "feature 1")
    regions_: Artist = field(init=False, repr=False)
    shade_: Artist = field(init=False, repr=False)
    points_: list[Artist] = field(init=False, repr=False)
    colorbar_: Colorbar = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike | None = None, *, n_grid: int = 150, ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw the regions of a fitted classifier around the rows of X, and the rows themselves if y is given.

        Parameters
        ----------
        estimator : fitted classifier with ``predict_uncertainty``, Pipeline or search
            What is looked at.
        X : array or data frame of shape (n_rows, 2)
            Inputs: the map reaches a little beyond them.
        y : array of shape (n_rows,) or None
            Labels or targets of the rows to draw.
        n_grid : int, default 150
            Points of the grid along each feature.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the points (``Axes.scatter``).

        Returns
        -------
        display
            Itself, drawn.
        """
        values = check_array(X, dtype=np.float64)
        if values.shape[1] != 2:
            raise ValueError(f"X has {values.shape[1]} columns: a map has two; fit and draw a classifier of two features.")
        n_grid = check_integer("n_grid", n_grid, low=2, fix="150 is the default")
        x0, x1 = (_span(column, n_grid) for column in values.T)
        grid = np.column_stack([axis.ravel() for axis in np.meshgrid(x0, x1)])
        model, grid = unwrap(estimator, _like(X, grid), "predict_uncertainty")
        decision = np.asarray(model.predict_proba(grid)).argmax(axis=1).reshape(n_grid, n_grid)
        epistemic = np.asarray(model.predict_uncertainty(grid).epistemic).reshape(n_grid, n_grid)
        points = None
        if y is not None:
            label = column_or_1d(y)
            check_consistent_length(values, label)
            points = (values[:, 0], values[:, 1], (label[:, None] == model.classes_).argmax(axis=1))
        names = (str(X.columns[0]), str(X.columns[1])) if hasattr(X, "columns") else ("feature 0", "feature 1")
        display = cls(
            x0=x0, x1=x1, decision=decision, epistemic=epistemic, classes=model.classes_, points=points, feature_names=names
        )
        return display.plot(ax, **kwargs)

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap, to_rgb

        colors = np.array([to_rgb(OKABE_ITO[index % 8]) for index in range(len(self.classes))])
        box: dict[str, Any] = {
            "extent": (self.x0[0], self.x0[-1], self.x1[0], self.x1[-1]),
            "origin": "lower",
            "aspect": "auto",
            "interpolation": "nearest",
        }
        self.regions_ = ax.imshow(0.55 + 0.45 * colors[self.decision], **box)
        darkness = LinearSegmentedColormap.from_list("epistemic", [(0, 0, 0, 0), (0, 0, 0, 0.75)])
        shade = ax.imshow(self.epistemic, cmap=darkness, vmin=0, **{**box, "interpolation": "bilinear"})
        self.shade_ = shade
        self.colorbar_ = self.figure_.colorbar(shade, ax=ax, label="epistemic uncertainty, nats")
        self.points_ = []
        if self.points is not None:
            x0, x1, index = self.points
            for k, name in enumerate(self.classes):
                style = {"color": OKABE_ITO[k % 8], "marker": "os^Dvp*X"[k % 8], "edgecolor": "white", "s": 28, "linewidth": 0.6}
                self.points_.append(ax.scatter(x0[index == k], x1[index == k], label=str(name), **{**style, **kwargs}))
            ax.legend(title="class", loc="upper right")
        ax.set(xlabel=self.feature_names[0], ylabel=self.feature_names[1])


@dataclass(eq=False, kw_only=True)
class PredictiveBandDisplay(Display):
    """Predictive mean of a regressor of one feature, with the central bands of the function and of new targets.

    Parameters
    ----------
    x, mean : ndarrays of shape (n_grid,)
        Grid of the feature, and the predictive mean there.
    epistemic, total : tuples of ndarrays (lower, upper), each of shape (n_grid,)
        Central intervals of the conditional mean over draws, and of a new target: noise included.
    coverage : float
        Of both bands.
    points : tuple of ndarrays (x, y), or None
        Rows to draw.
    feature_name : str
        Label of the axis.

    Attributes
    ----------
    line_ : Line2D
    epistemic_, total_ : PolyCollection
    points_ : Line2D or None
    ax_, figure_ : Axes, Figure

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_sgmcmc import BayesianMLPRegressor
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> model = BayesianMLPRegressor((5,), sampler="sghmc", max_iter=300, n_draws=20, random_state=0).fit(x, np.sin(3 * x[:, 0]))
    >>> PredictiveBandDisplay.from_estimator(model, x, n_grid=50).mean.shape
    (50,)
    """

    x: NDArray[np.float64]
    mean: NDArray[np.floating]
    epistemic: tuple[NDArray[np.floating], NDArray[np.floating]]
    total: tuple[NDArray[np.floating], NDArray[np.floating]]
    coverage: float
    points: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    feature_name: str = "x"
    line_: Line2D = field(init=False, repr=False)
    epistemic_: PolyCollection = field(init=False, repr=False)
    total_: PolyCollection = field(init=False, repr=False)
    points_: Line2D | None = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        coverage: float = 0.9,
        n_grid: int = 200,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the bands of a fitted regressor around the rows of X, and the rows themselves if y is given.

        Parameters
        ----------
        estimator : fitted regressor, Pipeline or search
            It has ``predict_mixture``, and one output.
        X : array or data frame of shape (n_rows, 1)
            Inputs: the bands reach a little beyond them.
        y : array of shape (n_rows,) or None
            Labels or targets of the rows to draw.
        coverage : float in (0, 1), default 0.9
            Of both bands.
        n_grid : int, default 200
            Points of the curves.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curve of the mean.

        Returns
        -------
        display
            Itself, drawn.
        """
        values = check_array(X, dtype=np.float64)
        if values.shape[1] != 1:
            raise ValueError(f"X has {values.shape[1]} columns: bands have one; fit and draw a regressor of one feature.")
        x = _span(values[:, 0], check_integer("n_grid", n_grid, low=2, fix="200 is the default"))
        model, grid = unwrap(estimator, _like(X, x[:, None]), "predict_mixture")
        if model.n_outputs_ != 1:
            raise ValueError(f"estimator predicts {model.n_outputs_} outputs: bands show one; fit and draw one output at a time.")
        lower, upper = model.predict_interval(grid, coverage)
        draws = model.sample_posterior(grid).reshape(-1, n_grid)
        between = np.quantile(draws, [0.5 - coverage / 2, 0.5 + coverage / 2], axis=0)
        check_consistent_length(values, y)
        points = None if y is None else (values[:, 0], np.asarray(column_or_1d(y), dtype=np.float64))
        display = cls(
            x=x,
            mean=np.asarray(model.predict(grid)).ravel(),
            epistemic=(between[0], between[1]),
            total=(np.ravel(lower), np.ravel(upper)),
            coverage=coverage,
            points=points,
            feature_name=str(X.columns[0]) if hasattr(X, "columns") else "x",
        )
        return display.plot(ax, **kwargs)

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        share = f"{100 * self.coverage:g} %"
        self.total_ = ax.fill_between(self.x, *self.total, color="#BFDDF0", label=f"{share} of new targets")
        self.epistemic_ = ax.fill_between(self.x, *self.epistemic, color="#5AA6D6", label=f"{share} of draws of the mean")
        (self.line_,) = ax.plot(self.x, self.mean, **{"color": "#003A5D", "label": "predictive mean", **kwargs})
        self.points_ = None
        if self.points is not None:
            (self.points_,) = ax.plot(*self.points, ".", color=OKABE_ITO[1], markersize=5, label="data")
        ax.set(xlabel=self.feature_name, ylabel="y", xlim=(self.x[0], self.x[-1]))
        ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))


def _span(column: NDArray[np.float64], n_points: int) -> NDArray[np.float64]:
    """Return evenly spaced points over the range of a feature and a tenth of it beyond on either side."""
    low, high = float(column.min()), float(column.max())
    margin = 0.1 * (high - low) or 1.0
    return np.linspace(low - margin, high + margin, n_points)


def _like(X: Any, values: NDArray[np.float64]) -> Any:
    """Return values as a data frame if X is one."""
    return type(X)(values, columns=X.columns) if hasattr(X, "iloc") else values
