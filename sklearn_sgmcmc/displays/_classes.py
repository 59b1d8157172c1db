"""How sure a classifier is, of which rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from sklearn_sgmcmc._checks import check_choice
from sklearn_sgmcmc.displays._base import OKABE_ITO, Display, check_few_rows
from sklearn_sgmcmc.metrics import unwrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

LEAST_KEPT = 20
"""The curve of a RejectionDisplay ends where one row in this many is left: an accuracy of a handful of rows is noise."""


@dataclass(eq=False, kw_only=True)
class RejectionDisplay(Display):
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

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        (self.line_,) = ax.plot(100 * self.rejected, 100 * self.accuracy, **{"label": self.name, "color": OKABE_ITO[0], **kwargs})
        self.base_ = ax.axhline(100 * self.accuracy[0], color=self.line_.get_color(), linestyle=":", linewidth=1)
        ax.set(xlabel="rows left out, most uncertain first, %", ylabel="accuracy on the rest, %", xlim=(0, 100))
        if self.name:
            ax.legend()


@dataclass(eq=False, kw_only=True)
class ProbabilitySpreadDisplay(Display):
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
        if draws.size == 0 or not ((draws >= 0) & (draws <= 1)).all():
            raise ValueError("proba is empty, or holds what is no probability: pass what sample_posterior of a classifier returns.")
        check_few_rows(draws.shape[1])
        return cls(proba=draws, classes=classes).plot(ax, **kwargs)

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
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
