"""Whether probabilities and intervals hold what they promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklearn_sgmcmc._checks import check_real
from sklearn_sgmcmc.displays._base import GREY, OKABE_ITO, Display
from sklearn_sgmcmc.metrics import interval_coverage, probability_integral_transform, reliability_curve, unwrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.container import BarContainer
    from matplotlib.lines import Line2D

COVERAGES = tuple(np.round(np.arange(0.05, 1.0, 0.05), 2).tolist())


@dataclass(eq=False, kw_only=True)
class ReliabilityDisplay(Display):
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

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
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


@dataclass(eq=False, kw_only=True)
class CoverageDisplay(Display):
    """Share of targets in their central predictive intervals against the share that there should be.

    Above the diagonal the intervals are too wide, below too narrow. The band holds 95 % of the points of a calibrated forecast for
    as many independent rows.

    Parameters
    ----------
    nominal : ndarray of shape (n_levels,)
        Levels that there should be, each in (0, 1].
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

        Behind a TransformedTargetRegressor, whose transformation has to be monotone, each level takes a pass of its own.

        Parameters
        ----------
        estimator : fitted regressor with ``predict_interval``, Pipeline, search or TransformedTargetRegressor
            What is looked at.
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Inputs.
        y : array of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        coverages : array of shape (n_levels,), default 0.05, 0.1 ... 0.95
            Levels, each in (0, 1].
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
        levels = _levels(coverages)
        name = type(estimator).__name__ if name is None else name
        model, X = unwrap(estimator, X, "predict_interval")
        if not hasattr(model, "predict_mixture"):  # targets were transformed: their intervals can be transformed back
            lower, upper = zip(*(model.predict_interval(X, level) for level in levels), strict=True)
            return cls.from_predictions(y, lower, upper, coverages=levels, name=name, ax=ax, **kwargs)
        u = probability_integral_transform(y, *model.predict_mixture(X))
        inside = np.abs(2 * u.reshape(len(u), -1) - 1)
        observed = (inside <= levels[:, None, None]).mean(axis=1)
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
            Levels, each in (0, 1].
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

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
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


def _levels(coverages: ArrayLike) -> NDArray[np.float64]:
    """Return nominal coverages, each in (0, 1]."""
    rule = "a probability in (0, 1]"
    if np.size(coverages) == 0:
        raise ValueError(f"coverages={coverages!r} is empty: give at least one {rule.removeprefix('a ')}, e.g. [0.5, 0.9].")
    return np.array(
        [check_real("coverages", c, rule=rule, fix="0.9 is one", high=1.0, open_low=True) for c in np.ravel(coverages).tolist()]
    )
