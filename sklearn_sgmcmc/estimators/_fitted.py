"""What a fitted estimator is asked: which weights it keeps, how far its chains agree, and what its draws predict."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_sgmcmc._checks import check_integer
from sklearn_sgmcmc.batches import Scaling, dense_rows
from sklearn_sgmcmc.diagnostics import Diagnostics, Measured, diagnose, evenly, per_chain, summary, to_data_tree
from sklearn_sgmcmc.estimators._inputs import generator, validate_data
from sklearn_sgmcmc.estimators._persistence import packed, unpacked
from sklearn_sgmcmc.estimators._review import Compared, Quantity
from sklearn_sgmcmc.network import MLP
from sklearn_sgmcmc.predictive import Ensemble, Statistic
from sklearn_sgmcmc.samplers._base import Law, Sampler
from sklearn_sgmcmc.threads import isolated

MEANING: dict[Law, str] = {
    "exact": "samples the posterior at the given temperature, at any step size",
    "small step": "samples the posterior at the given temperature as its steps go to zero",
    "biased": "samples another distribution than the posterior at the given temperature",
    "optimiser": "keeps the last state of each chain, near a mode of the posterior",
}
"""What the law of a sampler says of its chains, for ``summary()``."""


class FittedMLP(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """The stored posterior. ``_reference`` (rows, d) are scaled training rows at which predictions are compared."""

    draws_: NDArray[np.float32]
    potential_: NDArray[np.float64]
    learning_rate_: float | NDArray[np.float64]
    effective_temperature_: float | None
    sampler_: Sampler
    n_steps_: int
    n_iter_: int
    _network: MLP
    _x_scaling: Scaling
    _threshold: NDArray[np.float32] | None
    _prune: bool
    _reference: NDArray[np.float32]
    _measured: Measured
    _messages: list[str]

    @property
    def keep_mask_(self) -> NDArray[np.bool_]:
        """Which parameters of each draw are kept, shaped like ``draws_``: those that the prior's spike does not claim."""
        threshold = self._spike_threshold("keep_mask_")
        return np.asarray(np.abs(self.draws_) >= threshold)

    @property
    def sparsity_(self) -> float:
        """Share of connection weights that are kept, biases not counted, averaged over draws; in [0, 1]."""
        threshold = self._spike_threshold("sparsity_")
        columns = np.flatnonzero(self._network.layout().is_weight.numpy())
        return float(np.mean(np.abs(self.draws_[..., columns]) >= threshold[columns]))

    def _spike_threshold(self, name: str) -> NDArray[np.float32]:
        """Return the prior's thresholds; raise AttributeError if there are none."""
        threshold: NDArray[np.float32] | None = self.__dict__.get("_threshold")
        if threshold is None:
            raise AttributeError(
                f"{name} is there only after a fit with a prior that has a spike: use prior='spike_slab' or 'prior_switch'."
            )
        return threshold

    def set_params(self, **params: Any) -> Self:
        """Set parameters, ``sampler__friction`` and the like being fields of the object in a parameter.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self
            The estimator.

        Raises
        ------
        ValueError
            If there is no such parameter, or a field is set of what has none, such as ``sampler="sghmc"``.
        """
        for name in params:
            owner, _, inner = name.partition("__")
            value = params.get(owner, getattr(self, owner, None))
            if inner and owner in self._get_param_names() and not hasattr(value, "set_params"):
                raise ValueError(
                    f"{name}={params[name]!r} is a field of an object, and {owner}={value!r} is none: pass an object first, as in "
                    "sampler=SGHMC(), prior=Laplace() or schedule=Cyclical()."
                )
        super().set_params(**params)
        return self

    # --- diagnostics ---------------------------------------------------------------------------------------------------------

    def _quantities(self) -> list[Quantity]:
        """Return what is compared between chains."""
        raise NotImplementedError

    def _compared(self, most: int | None = None) -> tuple[Compared, Compared]:
        """Return at most so many quantities at all draws: those shared by all rows, and those at reference rows."""
        quantities = self._quantities()
        shared = [quantity for quantity in quantities if not quantity.per_row]
        of_rows = [quantity for quantity in quantities if quantity.per_row]
        rows = np.arange(len(self._reference))
        first = self._side_by_side(shared, rows[:1], None if most is None else most // 2)
        if most is not None:
            most -= len(first.names)
            rows = evenly(len(rows), max(1, most // max(1, sum(len(quantity.labels) for quantity in of_rows))))
        return first, self._side_by_side(of_rows, rows, most)

    def _side_by_side(self, quantities: list[Quantity], rows: NDArray[np.int64], most: int | None) -> Compared:
        """Return the values of quantities at some reference rows, evenly thinned to at most so many."""
        empty = np.empty((*self.draws_.shape[:2], 0))
        parts = [self._at_reference(quantity, rows).reshape(*empty.shape[:2], -1) for quantity in quantities]
        values = np.concatenate([empty, *parts], axis=2)
        names = [name for quantity in quantities for name in quantity.names(rows)]
        chosen = evenly(len(names), len(names) if most is None else most)
        return Compared([names[number] for number in chosen], values[:, :, chosen])

    def _at_reference(self, quantity: Quantity, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return a quantity at all draws and some reference rows, (S, C, rows, labels)."""
        with isolated():
            values = self._ensemble().values(self._reference[rows], quantity.statistic)
        return values.reshape(*self.draws_.shape[:2], *values.shape[1:])

    def diagnostics(self) -> Diagnostics:
        """Return how far the chains agree, in predictions and in U, and how the sampler fared.

        R-hat and effective sample sizes are of U over all training rows (at the draws of ``potential_``) and, at every draw, of the
        predictions at up to 32 training rows and of learned noise levels. They are computed anew at every call.

        Returns
        -------
        Diagnostics
            Arrays of R-hat and effective sample sizes, and the sampler's own figures.
        """
        check_is_fitted(self)
        shared, of_rows = self._compared()
        values = np.concatenate([shared.values, of_rows.values], axis=2)
        return diagnose(self._measured, self.potential_, values, shared.names + of_rows.names, self._messages)

    def summary(self) -> str:
        """Return the diagnostics and what was run as a plain-text table.

        Returns
        -------
        str
            Lines of names and values, the warnings of ``fit`` last.
        """
        check_is_fitted(self)
        rates = np.atleast_1d(self.learning_rate_)
        temperature = self.effective_temperature_
        head = [
            ("sampler", f"{type(self.sampler_).__name__}, law: {self.sampler_.law} ({MEANING[self.sampler_.law]})"),
            ("effective temperature", "no single number" if temperature is None else f"{temperature:.3g} (the posterior has 1)"),
            ("learning rate", per_chain(rates)),
            ("run", f"{self.n_steps_} steps, {self.n_iter_} epochs"),
            ("draws kept", f"{self.draws_.shape[0]} of each of {self.draws_.shape[1]} chains"),
        ]
        return summary(head, self.diagnostics())

    def to_arviz(self) -> Any:
        """Return the draws of what is compared between chains as ArviZ's data tree; needs the extra "arviz".

        Group ``posterior`` holds class probabilities (without the last class), or conditional means and log noise levels, at the
        reference rows: dimensions chain, draw, reference_row and class or output. Group ``sample_stats`` holds ``potential``, U in
        nats over all training rows, at the draws where it was evaluated. Chains that diverged are absent.

        Returns
        -------
        xarray.DataTree
            What ArviZ plots and summarises.

        Raises
        ------
        ImportError
            If arviz-base is not installed.
        """
        check_is_fitted(self)
        rows = np.arange(len(self._reference))
        found = {}
        for quantity in self._quantities():
            values = self._at_reference(quantity, rows if quantity.per_row else rows[:1])
            values = values if quantity.per_row else values[:, :, 0]
            dims = (["reference_row"] if quantity.per_row else []) + [quantity.axis]
            found[quantity.name] = (dims, values.swapaxes(0, 1), quantity.labels)
        return to_data_tree(found, self.potential_, self._measured.potential_draws)

    # --- predictions ---------------------------------------------------------------------------------------------------------

    def _ensemble(self) -> Ensemble:
        """Return the network at all stored draws, in (draw, chain) order, pruned if the prior says so."""
        draws = self.draws_.reshape(-1, self.draws_.shape[2])
        return Ensemble(self._network, draws, self._threshold if self._prune else None)

    def _inputs(self, X: Any) -> Any:
        """Check the inputs of a prediction."""
        check_is_fitted(self)
        return validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])

    def _scaled(self, X: Any, rows: slice) -> NDArray[np.floating]:
        """Return rows of checked inputs, scaled as in ``fit``, in their own dtype."""
        return self._x_scaling.apply(dense_rows(X, rows), X.dtype)

    def _moments(
        self, ensemble: Ensemble, X: Any, statistic: Statistic, rows: slice
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean and variance over draws of a statistic for some rows: two (n, columns) float64 arrays."""
        mean, variance = ensemble.moments(self._scaled(X, rows), statistic)
        return _finite(mean), _finite(variance)

    def _values(self, ensemble: Ensemble, X: Any, statistic: Statistic, rows: slice) -> NDArray[np.float64]:
        """Return a statistic at every draw of an ensemble for some rows, (M, n, columns) float64."""
        return _finite(ensemble.values(self._scaled(X, rows), statistic))

    def _some_draws(self, n_draws: int | None, random_state: int | np.random.RandomState | None) -> Ensemble:
        """Return the network at all stored draws, or at a random subset without replacement."""
        ensemble = self._ensemble()
        if n_draws is None:
            return ensemble
        stored = len(ensemble.draws)
        n_draws = check_integer("n_draws", n_draws, low=1, fix=f"None returns all {stored} stored draws")
        if n_draws > stored:
            raise ValueError(f"n_draws={n_draws} exceeds the {stored} stored draws; ask for at most that many.")
        return ensemble.subset(generator(random_state).choice(stored, size=n_draws, replace=False))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is saved."""
        return packed(super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take up what was saved."""
        super().__setstate__(unpacked(state, type(self).__name__))

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit has succeeded."""
        return hasattr(self, "draws_")

    def __sklearn_tags__(self) -> Any:
        """Accept sparse input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    """Return predictions that are finite; raise ValueError otherwise."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"X gives predictions that overflow {values.dtype.name}: it is far from the training rows, or y has extreme units. "
            "Check the units of X and y, and pass X as float64."
        )
    return values


def cast_finite(values: NDArray[Any], dtype: Any) -> NDArray[np.floating]:
    """Return values in another dtype; raise ValueError if they do not fit."""
    with np.errstate(over="ignore"):
        return _finite(values.astype(dtype))
