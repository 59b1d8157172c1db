"""What displays share: colours, axes and the object itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
"""Colours that people with any colour vision can tell apart. Source: Okabe & Ito 2008."""
GREY = "0.45"
MOST_ROWS = 8
"""Rows that displays with a panel or a group for each row can show."""


def new_axes(n_rows: int = 1, n_columns: int = 1) -> Any:
    """Return the axes of a new figure, one above the other or side by side."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("displays need matplotlib; install it with: pip install 'sklearn-sgmcmc[plot]'.") from error
    height = 4.8 if n_rows == 1 else 1.2 + 1.3 * n_rows
    return plt.subplots(n_rows, n_columns, sharex=True, squeeze=False, figsize=(6.4, height), layout="constrained")[1].ravel()


@dataclass(eq=False, kw_only=True)
class Display:
    """What all displays have: the axes and figure that they were drawn on."""

    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : Axes or None
            None makes a figure.
        **kwargs
            Go where those of ``from_estimator`` go: to the curves, the points or the boxes.

        Returns
        -------
        display
            Itself, drawn.
        """
        self._draw(self._use(ax), **kwargs)
        return self

    def _draw(self, ax: Axes, **kwargs: Any) -> None:
        """Draw on one pair of axes; displays of several panels have a ``plot`` of their own."""
        raise NotImplementedError

    def _use(self, ax: Axes | None) -> Axes:
        """Remember the axes given, or new ones."""
        self.ax_ = new_axes()[0] if ax is None else ax
        self.figure_ = self.ax_.figure  # type: ignore[assignment]  # a SubFigure draws, too
        return self.ax_


def check_few_rows(n_rows: int) -> None:
    """Raise ValueError if there are more rows than a display can show."""
    if n_rows > MOST_ROWS:
        raise ValueError(f"X has {n_rows} rows: this display shows at most {MOST_ROWS}; pass a few rows to look at, e.g. X[:4].")
