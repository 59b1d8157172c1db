"""How the chains moved, and how far they agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sklearn_sgmcmc.displays._base import GREY, OKABE_ITO, Display, check_few_rows, new_axes
from sklearn_sgmcmc.metrics import unwrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


@dataclass(eq=False, kw_only=True)
class PotentialDisplay(Display):
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

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        self.lines_ = []
        for chain, curve in enumerate(self.potential.T):
            style = {"color": OKABE_ITO[chain % 8], "linewidth": 1, "label": f"chain {chain}", **kwargs}
            self.lines_ += ax.plot(self.step, curve, **style)
        settled = self.potential[len(self.potential) // 10 :]
        low, high = float(settled.min()), float(settled.max())
        margin = 0.1 * (high - low) or 1.0
        ax.set(xlabel="step", ylabel="potential, nats", xlim=(0, self.step[-1]), ylim=(low - margin, high + 2 * margin))
        ax.legend(ncols=2, loc="upper right")


@dataclass(eq=False, kw_only=True)
class TraceDisplay(Display):
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
        check_few_rows(draws.shape[1])
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
        self.axes_ = np.atleast_1d(new_axes(n_rows) if ax is None else np.asarray(ax, dtype=object)).ravel()
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
class ConvergenceDisplay(Display):
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
        self.axes_ = (new_axes(n_columns=2) if ax is None else np.asarray(ax, dtype=object)).ravel()
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
