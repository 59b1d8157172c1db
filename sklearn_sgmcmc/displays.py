"""Figures of uncertainty, by scikit-learn's conventions for displays.

Each display is made by ``from_estimator`` or ``from_predictions``, keeps what it shows as attributes, and draws on ``ax`` or on a
new figure; ``plot`` draws it again. Estimators may stand in Pipelines and fitted searches. matplotlib is imported to draw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from sklearn_sgmcmc._checks import check_choice, check_integer, check_real
from sklearn_sgmcmc.metrics import interval_coverage, probability_integral_transform, reliability_curve, unwrap

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.colorbar import Colorbar
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
"""Colours that people with any colour vision can tell apart. Source: Okabe & Ito 2008."""
GREY = "0.45"
COVERAGES = tuple(np.round(np.arange(0.05, 1.0, 0.05), 2).tolist())
LEAST_KEPT = 20
"""The curve of a RejectionDisplay ends where one row in this many is left: an accuracy of a handful of rows is noise."""
MOST_ROWS = 8
"""Rows that displays with a panel or a group for each row can show."""


def _new_axes(n_rows: int = 1, n_columns: int = 1) -> Any:
    """Return the axes of a new figure, one above the other or side by side."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("displays need matplotlib; install it with: pip install 'sklearn-sgmcmc[plot]'.") from error
    height = 4.8 if n_rows == 1 else 1.2 + 1.3 * n_rows
    return plt.subplots(n_rows, n_columns, sharex=True, squeeze=False, figsize=(6.4, height), layout="constrained")[1].ravel()


@dataclass(eq=False, kw_only=True)
class _Display:
    """What all displays have: the axes and figure that they were drawn on."""

    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    def _use(self, ax: Axes | None) -> Axes:
        """Remember the axes given, or new ones."""
        self.ax_ = _new_axes()[0] if ax is None else ax
        self.figure_ = self.ax_.figure  # type: ignore[assignment]  # a SubFigure draws, too
        return self.ax_


# --- calibration -------------------------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class ReliabilityDisplay(_Display):
    """Accuracy against confidence, with the number of rows in each bin of confidence.

    On the diagonal, a class that is given 80 % is right in 80 % of the rows. Source: Guo et al. 2017.

    Parameters
    ----------
    confidence, accuracy, count : ndarrays of shape (n_filled_bins,)
        What ``metrics.reliability_curve`` returns.
    n_bins : int
        Bins between 0 and 1, filled or not.
    name : str or None
        Of the curve.

    Attributes
    ----------
    line_, diagonal_, bars_ : matplotlib artists
    ax_, count_ax_ : Axes
        Of accuracy, and of the number of rows.
    figure_ : Figure

    Examples
    --------
    >>> from sklearn_sgmcmc.metrics import reliability_curve
    >>> curve = reliability_curve([0, 1, 1, 1], [[0.1, 0.9]] * 4, labels=[0, 1], n_bins=10)
    >>> display = ReliabilityDisplay(confidence=curve[0], accuracy=curve[1], count=curve[2], n_bins=10)
    """

    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    count: NDArray[np.float64]
    n_bins: int
    name: str | None = None
    line_: Line2D = field(init=False, repr=False)
    diagonal_: Line2D = field(init=False, repr=False)
    bars_: BarContainer = field(init=False, repr=False)
    count_ax_: Axes = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        n_bins: int = 10,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the curve of a fitted classifier on rows and labels.

        Parameters
        ----------
        estimator : fitted classifier, Pipeline or search
            What is looked at.
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Inputs.
        y : array of shape (n_rows,)
            Labels.
        n_bins : int >= 1, default 10
            Bins of confidence between 0 and 1.
        sample_weight : array of shape (n_rows,) or None
            Counts: a row of weight k counts as k rows.
        name : str or None
            Label of the curve; None is the estimator's class.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curve.

        Returns
        -------
        display
            Itself, drawn.
        """
        proba = estimator.predict_proba(X)
        name = type(estimator).__name__ if name is None else name
        labels = estimator.classes_
        return cls.from_predictions(y, proba, labels=labels, n_bins=n_bins, sample_weight=sample_weight, name=name, ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_proba: ArrayLike,
        *,
        labels: ArrayLike,
        n_bins: int = 10,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the curve of class probabilities (n_rows, n_classes), columns in the order of ``labels``.

        Parameters
        ----------
        y_true : array of shape (n_rows,)
            Labels.
        y_proba : array of shape (n_rows, n_classes)
            Class probabilities.
        labels : array of shape (n_classes,)
            A classifier's ``classes_``.
        n_bins : int >= 1, default 10
            Bins of confidence between 0 and 1.
        sample_weight : array of shape (n_rows,) or None
            Counts: a row of weight k counts as k rows.
        name : str or None
            Label of the curve.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curve.

        Returns
        -------
        display
            Itself, drawn.
        """
        confidence, accuracy, count = reliability_curve(y_true, y_proba, labels=labels, n_bins=n_bins, sample_weight=sample_weight)
        return cls(confidence=confidence, accuracy=accuracy, count=count, n_bins=n_bins, name=name).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curve.

        Returns
        -------
        display
            Itself, drawn.
        """
        ax = self._use(ax)
        error = float(np.average(np.abs(self.accuracy - self.confidence), weights=self.count))
        label = f"{self.name}, ECE {error:.3f}" if self.name else f"ECE {error:.3f}"
        self.count_ax_ = ax.twinx()
        bins = (np.minimum(np.floor(self.confidence * self.n_bins), self.n_bins - 1) + 0.5) / self.n_bins
        self.bars_ = self.count_ax_.bar(bins, self.count, width=0.9 / self.n_bins, color="0.85")
        self.count_ax_.set(ylabel="rows in the bin (bars)", ylim=(0, 3 * self.count.max()))
        self.count_ax_.yaxis.label.set_color(GREY)
        self.count_ax_.tick_params(axis="y", colors=GREY)
        ax.set_zorder(self.count_ax_.get_zorder() + 1)
        ax.patch.set_visible(False)
        (self.diagonal_,) = ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="calibrated")
        (self.line_,) = ax.plot(self.confidence, self.accuracy, **{"color": OKABE_ITO[0], "marker": "o", "label": label, **kwargs})
        low = float(np.floor(self.confidence.min() * self.n_bins) / self.n_bins)
        ax.set(xlabel="confidence in the predicted class", ylabel="accuracy", xlim=(low, 1), ylim=(0, 1.02))
        ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
        return self


@dataclass(eq=False, kw_only=True)
class CoverageDisplay(_Display):
    """Share of targets in their central predictive intervals against the share that there should be.

    Above the diagonal the intervals are too wide, below too narrow. The band holds 95 % of the points of a calibrated forecast for
    as many independent rows.

    Parameters
    ----------
    nominal : ndarray of shape (n_levels,)
        Levels that there should be, each in (0, 1).
    observed : ndarray of shape (n_levels, n_outputs)
        Shares of targets in their intervals.
    n_rows : int
        Rows that were counted: the width of the band.
    name : str or None
        Of the curve.

    Attributes
    ----------
    lines_ : list of Line2D, one per output
    diagonal_, band_ : matplotlib artists
    ax_, figure_ : Axes, Figure

    Examples
    --------
    >>> display = CoverageDisplay.from_predictions([1, 2, 3, 4], [[0] * 4], [[2] * 4], coverages=[0.5])
    >>> display.observed.tolist()
    [[0.5]]
    """

    nominal: NDArray[np.float64]
    observed: NDArray[np.float64]
    n_rows: int
    name: str | None = None
    lines_: list[Line2D] = field(init=False, repr=False)
    diagonal_: Line2D = field(init=False, repr=False)
    band_: PolyCollection = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        coverages: ArrayLike = COVERAGES,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the coverage of a fitted regressor's intervals on rows and targets, all levels from one pass over the draws.

        Parameters
        ----------
        estimator : fitted regressor with ``predict_mixture``, Pipeline or search
            What is looked at.
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Inputs.
        y : array of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        coverages : array of shape (n_levels,), default 0.05, 0.1 ... 0.95
            Levels, each in (0, 1).
        name : str or None
            None is the estimator's class.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curves.

        Returns
        -------
        display
            Itself, drawn.
        """
        model, X = unwrap(estimator, X, "predict_mixture")
        u = probability_integral_transform(y, *model.predict_mixture(X))
        inside = np.abs(2 * u.reshape(len(u), -1) - 1)
        levels = _levels(coverages)
        observed = (inside <= levels[:, None, None]).mean(axis=1)
        name = type(estimator).__name__ if name is None else name
        return cls(nominal=levels, observed=observed, n_rows=len(u), name=name).plot(ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        lower: ArrayLike,
        upper: ArrayLike,
        *,
        coverages: ArrayLike,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the coverage of any intervals: ``lower`` and ``upper`` have one block for each of ``coverages`` in front.

        Parameters
        ----------
        y_true : array of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        lower, upper : arrays of shape (n_levels, n_rows) or (n_levels, n_rows, n_outputs)
            Bounds.
        coverages : array of shape (n_levels,)
            Levels, each in (0, 1).
        name : str or None
            Label of the curve.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curves.

        Returns
        -------
        display
            Itself, drawn.
        """
        levels = _levels(coverages)
        if not len(levels) == len(np.asarray(lower)) == len(np.asarray(upper)):
            raise ValueError(
                f"lower and upper have {len(np.asarray(lower))} and {len(np.asarray(upper))} blocks, and coverages {len(levels)} "
                "levels: stack one block of bounds for each level."
            )
        pairs = zip(np.asarray(lower), np.asarray(upper), strict=True)
        observed = np.array([interval_coverage(y_true, low, high, multioutput="raw_values") for low, high in pairs])
        return cls(nominal=levels, observed=observed, n_rows=len(np.asarray(y_true)), name=name).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curves.

        Returns
        -------
        display
            Itself, drawn.
        """
        ax = self._use(ax)
        c = np.linspace(0, 1, 101)
        half = 1.96 * np.sqrt(c * (1 - c) / self.n_rows)
        self.band_ = ax.fill_between(
            100 * c, 100 * (c - half), 100 * (c + half), color="0.88", label=f"95 % of calibrated forecasts, {self.n_rows} rows"
        )
        (self.diagonal_,) = ax.plot([0, 100], [0, 100], color=GREY, linestyle=":")
        self.lines_ = []
        for output, column in enumerate(self.observed.T):
            label = self.name if self.observed.shape[1] == 1 else f"{self.name or 'intervals'}, output {output}"
            style = {"color": OKABE_ITO[output % 8], "marker": "o", "markersize": 4, "label": label, **kwargs}
            self.lines_ += ax.plot(100 * self.nominal, 100 * column, **style)
        ax.set(xlabel="nominal coverage, %", ylabel="targets in their intervals, %", xlim=(0, 100), ylim=(0, 100))
        ax.legend(loc="upper left")
        return self


# --- classification ----------------------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class RejectionDisplay(_Display):
    """Accuracy on the rest when the rows with the largest uncertainty are left out.

    Parameters
    ----------
    rejected, accuracy : ndarrays of shape (n_points,)
        Share of the rows left out, rising, and accuracy on those kept.
    name : str or None
        Of the curve.

    Attributes
    ----------
    line_, base_ : Line2D
        The curve, and the accuracy on all rows.
    ax_, figure_ : Axes, Figure

    Examples
    --------
    >>> display = RejectionDisplay.from_predictions([0, 1, 1], [0, 1, 0], [0.1, 0.2, 0.3])
    >>> display.accuracy.round(2).tolist()
    [0.67, 1.0, 1.0]
    """

    rejected: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    name: str | None = None
    line_: Line2D = field(init=False, repr=False)
    base_: Line2D = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        uncertainty: str = "total",
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the curve of a fitted classifier.

        Parameters
        ----------
        estimator : fitted classifier with ``predict_uncertainty``, Pipeline or search
            What is looked at.
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Inputs.
        y : array of shape (n_rows,)
            Labels.
        uncertainty : {"total", "epistemic", "aleatoric"}, default "total"
            Part of ``predict_uncertainty`` by which rows are left out.
        name : str or None
            None is the estimator's class.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curve.

        Returns
        -------
        display
            Itself, drawn.
        """
        check_choice("uncertainty", uncertainty, ("total", "epistemic", "aleatoric"))
        model, X = unwrap(estimator, X, "predict_uncertainty")
        name = f"{type(estimator).__name__}, by {uncertainty} uncertainty" if name is None else name
        return cls.from_predictions(y, model.predict(X), model.predict_uncertainty(X)[uncertainty], name=name, ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        uncertainty: ArrayLike,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the curve of labels, predicted labels and any uncertainty, such as one minus the highest probability.

        Parameters
        ----------
        y_true, y_pred : arrays of shape (n_rows,)
            Labels, and predicted labels.
        uncertainty : array of shape (n_rows,)
            The rows where it is largest are left out first.
        name : str or None
            Label of the curve.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curve.

        Returns
        -------
        display
            Itself, drawn.
        """
        check_consistent_length(y_true, y_pred, uncertainty)
        right = column_or_1d(y_true) == column_or_1d(y_pred)
        doubt = column_or_1d(check_array(uncertainty, ensure_2d=False, dtype=np.float64, input_name="uncertainty"))
        n_rows = len(right)
        kept = np.arange(n_rows, max(1, n_rows // LEAST_KEPT) - 1, -1)
        accuracy = np.cumsum(right[np.argsort(doubt, kind="stable")])[kept - 1] / kept
        return cls(rejected=1 - kept / n_rows, accuracy=accuracy, name=name).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curve.

        Returns
        -------
        display
            Itself, drawn.
        """
        ax = self._use(ax)
        (self.line_,) = ax.plot(100 * self.rejected, 100 * self.accuracy, **{"label": self.name, "color": OKABE_ITO[0], **kwargs})
        self.base_ = ax.axhline(100 * self.accuracy[0], color=self.line_.get_color(), linestyle=":", linewidth=1)
        ax.set(xlabel="rows left out, most uncertain first, %", ylabel="accuracy on the rest, %", xlim=(0, 100))
        if self.name:
            ax.legend()
        return self


@dataclass(eq=False, kw_only=True)
class DecisionMapDisplay(_Display):
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

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the points.

        Returns
        -------
        display
            Itself, drawn.
        """
        ax = self._use(ax)
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
        return self


@dataclass(eq=False, kw_only=True)
class ProbabilitySpreadDisplay(_Display):
    """Class probabilities of a few rows, spread over the draws.

    A box holds the middle half of the draws and its whiskers 95 %; the line in it is the median.

    Parameters
    ----------
    proba : ndarray of shape (n_draws, n_rows, n_classes)
        What ``sample_posterior`` of a classifier returns.
    classes : ndarray of shape (n_classes,)
        Labels.

    Attributes
    ----------
    boxes_ : list of dict, one per class
        What ``Axes.boxplot`` returns.
    ax_, figure_ : Axes, Figure

    Examples
    --------
    >>> display = ProbabilitySpreadDisplay.from_predictions([[[0.2, 0.8]], [[0.4, 0.6]]], labels=["no", "yes"])
    >>> display.proba.shape
    (2, 1, 2)
    """

    proba: NDArray[np.floating]
    classes: NDArray[Any]
    boxes_: list[dict[str, Any]] = field(init=False, repr=False)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the spread of a fitted classifier's probabilities at the rows of X, at most eight.

        Parameters
        ----------
        estimator : fitted classifier, Pipeline or search
            What is looked at.
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Inputs.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to ``Axes.boxplot``.

        Returns
        -------
        display
            Itself, drawn.
        """
        model, X = unwrap(estimator, X, "sample_posterior")
        labels = unwrap(model, None, "classes_")[0].classes_
        return cls.from_predictions(model.sample_posterior(X), labels=labels, ax=ax, **kwargs)

    @classmethod
    def from_predictions(cls, proba: ArrayLike, *, labels: ArrayLike, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the spread of probabilities (n_draws, n_rows, n_classes), the last axis in the order of ``labels``.

        Parameters
        ----------
        proba : array of shape (n_draws, n_rows, n_classes)
            What ``sample_posterior`` returns.
        labels : array of shape (n_classes,)
            A classifier's ``classes_``.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to ``Axes.boxplot``.

        Returns
        -------
        display
            Itself, drawn.
        """
        draws, classes = np.asarray(proba, dtype=np.float64), np.asarray(labels)
        if draws.ndim != 3 or draws.shape[2:] != classes.shape:
            raise ValueError(
                f"proba has shape {draws.shape}, and there are {classes.size} labels: it must be (n_draws, n_rows, n_classes), "
                "what sample_posterior of a classifier returns."
            )
        _check_few_rows(draws.shape[1])
        return cls(proba=draws, classes=classes).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to ``Axes.boxplot``.

        Returns
        -------
        display
            Itself, drawn.
        """
        ax = self._use(ax)
        n_rows, n_classes = self.proba.shape[1:]
        width = 0.8 / n_classes
        self.boxes_ = []
        for k, name in enumerate(self.classes):
            color = OKABE_ITO[k % 8]
            style: dict[str, Any] = {
                "whis": (2.5, 97.5),
                "showfliers": False,
                "patch_artist": True,
                "boxprops": {"facecolor": color, "edgecolor": color, "alpha": 0.6},
                "medianprops": {"color": "black"},
                "whiskerprops": {"color": color},
                "capprops": {"color": color},
            }
            positions = np.arange(n_rows) + (k - (n_classes - 1) / 2) * width
            self.boxes_.append(ax.boxplot(self.proba[:, :, k], positions=positions, widths=0.8 * width, **{**style, **kwargs}))
            ax.fill_between([], [], [], color=color, alpha=0.6, label=str(name))
        ax.set(xlabel="row", ylabel="class probability over draws", ylim=(-0.02, 1.02), xlim=(-0.5, n_rows - 0.5))
        ax.set_xticks(range(n_rows), [str(row) for row in range(n_rows)])
        for row in range(1, n_rows):
            ax.axvline(row - 0.5, color="0.85", linewidth=1)
        ax.legend(title="class", loc="upper left", bbox_to_anchor=(1, 1))
        return self


# --- regression --------------------------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class PredictiveBandDisplay(_Display):
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

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the curve of the mean.

        Returns
        -------
        display
            Itself, drawn.
        """
        ax = self._use(ax)
        share = f"{100 * self.coverage:g} %"
        self.total_ = ax.fill_between(self.x, *self.total, color="#BFDDF0", label=f"{share} of new targets")
        self.epistemic_ = ax.fill_between(self.x, *self.epistemic, color="#5AA6D6", label=f"{share} of draws of the mean")
        (self.line_,) = ax.plot(self.x, self.mean, **{"color": "#003A5D", "label": "predictive mean", **kwargs})
        self.points_ = None
        if self.points is not None:
            (self.points_,) = ax.plot(*self.points, ".", color=OKABE_ITO[1], markersize=5, label="data")
        ax.set(xlabel=self.feature_name, ylabel="y", xlim=(self.x[0], self.x[-1]))
        ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
        return self


# --- chains ------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class PotentialDisplay(_Display):
    """Trace of the potential U = -log posterior of each chain over the run, burn-in included.

    Chains that have settled run level and on top of each other. U is that of the current minibatch.

    Parameters
    ----------
    step : ndarray of shape (n_points,)
        Steps at which the potential was recorded, evenly spaced.
    potential : ndarray of shape (n_points, n_chains)
        In nats.

    Attributes
    ----------
    lines_ : list of Line2D, one per chain
    ax_, figure_ : Axes, Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), sampler="sgld", max_iter=300, n_draws=20, random_state=0).fit(X, y)
    >>> PotentialDisplay.from_estimator(model).potential.shape[1]
    4
    """

    step: NDArray[np.float64]
    potential: NDArray[np.float64]
    lines_: list[Line2D] = field(init=False, repr=False)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the trace of a fitted estimator's ``potential_curve_``.

        Parameters
        ----------
        estimator : fitted estimator, Pipeline or search
            What is looked at.
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the lines.

        Returns
        -------
        display
            Itself, drawn.
        """
        model, _ = unwrap(estimator, None, "potential_curve_")
        potential = np.asarray(model.potential_curve_)
        return cls(step=np.linspace(0, model.n_steps_, len(potential)), potential=potential).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go to the lines.

        Returns
        -------
        display
            Itself, drawn.
        """
        ax = self._use(ax)
        self.lines_ = []
        for chain, curve in enumerate(self.potential.T):
            style = {"color": OKABE_ITO[chain % 8], "linewidth": 1, "label": f"chain {chain}", **kwargs}
            self.lines_ += ax.plot(self.step, curve, **style)
        settled = self.potential[len(self.potential) // 10 :]
        low, high = float(settled.min()), float(settled.max())
        margin = 0.1 * (high - low) or 1.0
        ax.set(xlabel="step", ylabel="potential, nats", xlim=(0, self.step[-1]), ylim=(low - margin, high + 2 * margin))
        ax.legend(ncols=2, loc="upper right")
        return self


@dataclass(eq=False, kw_only=True)
class TraceDisplay(_Display):
    """Predictions at a few rows by draw and chain: what R-hat looks at, to look at.

    Chains that have mixed cover the same ground in each panel, without trends.

    Parameters
    ----------
    values : ndarray of shape (n_draws, n_chains, n_rows)
        Draws per chain.
    quantity : str
        What the values are.

    Attributes
    ----------
    lines_ : list of lists of Line2D, by row and chain
    axes_ : ndarray of Axes, one per row
    ax_, figure_ : Axes, Figure
        The first of the panels, and the figure.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), sampler="sgld", max_iter=300, n_draws=20, random_state=0).fit(X, y)
    >>> TraceDisplay.from_estimator(model, X[:2]).values.shape
    (20, 4, 2)
    """

    values: NDArray[np.floating]
    quantity: str
    lines_: list[list[Line2D]] = field(init=False, repr=False)
    axes_: NDArray[Any] = field(init=False, repr=False)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the traces of a fitted estimator at the rows of X, at most eight: the mean, or the top class's probability.

        Parameters
        ----------
        estimator : fitted classifier, or regressor of one output; Pipeline or search
            What is looked at.
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Inputs.
        ax : Axes, array of Axes (one per row) or None
            None makes a figure.
        **kwargs
            Go to the lines.

        Returns
        -------
        display
            Itself, drawn.
        """
        model, X = unwrap(estimator, X, "sample_posterior")
        draws = np.asarray(model.sample_posterior(X))
        _check_few_rows(draws.shape[1])
        quantity = "mean of y"
        if hasattr(model, "classes_"):
            top = draws.mean(axis=0).argmax(axis=1)
            draws = draws[:, np.arange(len(top)), top]
            quantity = "probability"
        elif draws.ndim == 3 and draws.shape[2] > 1:
            raise ValueError(f"estimator predicts {draws.shape[2]} outputs: traces show one; fit and draw one output at a time.")
        n_chains = model.draws_.shape[1]
        return cls(values=draws.reshape(-1, n_chains, draws.shape[1]), quantity=quantity).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : Axes, array of Axes (one per row) or None
            None makes a figure.
        **kwargs
            Go to the lines.

        Returns
        -------
        display
            Itself, drawn.
        """
        _, n_chains, n_rows = self.values.shape
        self.axes_ = np.atleast_1d(_new_axes(n_rows) if ax is None else np.asarray(ax, dtype=object)).ravel()
        if len(self.axes_) != n_rows:
            raise ValueError(f"ax holds {len(self.axes_)} axes, and there are {n_rows} rows: give one each, or None.")
        self._use(self.axes_[0])
        self.lines_ = []
        for row, panel in enumerate(self.axes_):
            style = [{"color": OKABE_ITO[chain % 8], "linewidth": 1, "label": f"chain {chain}"} for chain in range(n_chains)]
            traces = zip(self.values[:, :, row].T, style, strict=True)
            self.lines_.append([panel.plot(trace, **{**default, **kwargs})[0] for trace, default in traces])
            panel.set(ylabel=f"{self.quantity}\nrow {row}", xlim=(0, max(1, len(self.values) - 1)))
        self.axes_[-1].set_xlabel("draw, in order of sampling")
        self.ax_.legend(ncols=min(4, n_chains), loc="lower center", bbox_to_anchor=(0.5, 1))
        return self


@dataclass(eq=False, kw_only=True)
class ConvergenceDisplay(_Display):
    """R-hat and effective sample sizes of everything that chains are compared by, worst first.

    Left, R-hat: 1 for chains that agree; 1.01 is what a report may claim, beyond 1.1 ``fit`` warns. Right, how many independent
    draws all chains together are worth. Quantities that never vary are left out.

    Parameters
    ----------
    names : list of str, length Q
        Of the quantities.
    r_hat, ess_bulk, ess_tail : ndarrays of shape (Q,)
        What ``diagnostics()`` returns.
    n_draws : int
        Compared draws of all chains together.

    Attributes
    ----------
    r_hat_, ess_bulk_, ess_tail_ : Line2D, the points
    axes_ : ndarray of two Axes
    ax_, figure_ : Axes, Figure
        The left panel, and the figure.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), sampler="sgld", max_iter=300, n_draws=20, random_state=0).fit(X, y)
    >>> ConvergenceDisplay.from_estimator(model).names[0]
    'potential'
    """

    names: list[str]
    r_hat: NDArray[np.float64]
    ess_bulk: NDArray[np.float64]
    ess_tail: NDArray[np.float64]
    n_draws: int
    r_hat_: Line2D = field(init=False, repr=False)
    ess_bulk_: Line2D = field(init=False, repr=False)
    ess_tail_: Line2D = field(init=False, repr=False)
    axes_: NDArray[Any] = field(init=False, repr=False)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the overview of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator, Pipeline or search
            What is looked at.
        ax : array of two Axes or None
            None makes a figure.
        **kwargs
            Go to the points.

        Returns
        -------
        display
            Itself, drawn.

        Raises
        ------
        ValueError
            If its chains cannot be compared.
        """
        model, _ = unwrap(estimator, None, "diagnostics")
        found = model.diagnostics()
        if not found.n_draws or found.n_chains < 2:
            why = found.note or "one chain has no other to agree with; fit with n_chains >= 2"
            raise ValueError(f"estimator has no R-hat to show: {why}.")
        return cls(
            names=found.names,
            r_hat=found.r_hat,
            ess_bulk=found.ess_bulk,
            ess_tail=found.ess_tail,
            n_draws=found.n_draws * found.n_chains,
        ).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the display on two axes side by side.

        Parameters
        ----------
        ax : array of two Axes or None
            None makes a figure.
        **kwargs
            Go to the points.

        Returns
        -------
        display
            Itself, drawn.
        """
        self.axes_ = (_new_axes(n_columns=2) if ax is None else np.asarray(ax, dtype=object)).ravel()
        if len(self.axes_) != 2:
            raise ValueError(f"ax holds {len(self.axes_)} axes: give two, for R-hat and for effective sample sizes, or None.")
        left, right = self._use(self.axes_[0]), self.axes_[1]
        order = np.argsort(-self.r_hat, kind="stable")
        order = order[np.isfinite(self.r_hat[order])]
        place = np.arange(1, len(order) + 1)
        style = {"linestyle": "none", "markersize": 4, **kwargs}
        (self.r_hat_,) = left.plot(place, self.r_hat[order], marker="o", color=OKABE_ITO[0], **style)
        (self.ess_bulk_,) = right.plot(place, self.ess_bulk[order], marker="o", color=OKABE_ITO[0], label="bulk", **style)
        (self.ess_tail_,) = right.plot(place, self.ess_tail[order], marker="^", color=OKABE_ITO[1], label="tail", **style)
        self._mark_potential(order)
        for level, name in ((1.01, "1.01: reports"), (1.1, "1.1: fit warns")):
            left.axhline(level, color=GREY, linewidth=1, linestyle="--")
            where = {"xy": (0.02, level), "xycoords": ("axes fraction", "data"), "va": "bottom"}
            left.annotate(name, **where, color=GREY, fontsize="small")  # type: ignore[arg-type]
        right.axhline(self.n_draws, color=GREY, linewidth=1, linestyle="--", label=f"{self.n_draws} draws")
        left.set(xlabel="quantity, worst first", ylabel="R-hat", ylim=(min(0.99, *left.get_ylim()), max(1.15, *left.get_ylim())))
        right.set(xlabel="quantity, worst first", ylabel="effective sample size", yscale="log")
        right.legend(loc="lower right")
        return self

    def _mark_potential(self, order: NDArray[np.int64]) -> None:
        """Name the potential, which stands first among the quantities."""
        for place in np.flatnonzero(order == 0) + 1:
            self.axes_[0].plot(
                place,
                self.r_hat[0],
                marker="s",
                markersize=7,
                fillstyle="none",
                color=OKABE_ITO[7],
                linestyle="none",
                label="potential",
            )
            self.axes_[0].legend(loc="upper right")


# --- arguments ---------------------------------------------------------------------------------------------------------------


def _levels(coverages: ArrayLike) -> NDArray[np.float64]:
    """Return nominal coverages, each in (0, 1)."""
    rule = "a probability in (0, 1]"
    if np.size(coverages) == 0:
        raise ValueError(f"coverages={coverages!r} is empty: give at least one {rule.removeprefix('a ')}, e.g. [0.5, 0.9].")
    return np.array(
        [check_real("coverages", c, rule=rule, fix="0.9 is one", high=1.0, open_low=True) for c in np.ravel(coverages).tolist()]
    )


def _span(column: NDArray[np.float64], n_points: int) -> NDArray[np.float64]:
    """Return evenly spaced points over the range of a feature and a tenth of it beyond on either side."""
    low, high = float(column.min()), float(column.max())
    margin = 0.1 * (high - low) or 1.0
    return np.linspace(low - margin, high + margin, n_points)


def _like(X: Any, values: NDArray[np.float64]) -> Any:
    """Return values as a data frame if X is one."""
    return type(X)(values, columns=X.columns) if hasattr(X, "iloc") else values


def _check_few_rows(n_rows: int) -> None:
    if n_rows > MOST_ROWS:
        raise ValueError(f"X has {n_rows} rows: this display shows at most {MOST_ROWS}; pass a few rows to look at, e.g. X[:4].")
