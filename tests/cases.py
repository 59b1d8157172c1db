"""Strategies of test_fuzz.py and test_sequences.py: what people, and those who dislike us, may hand to an estimator.

A case holds names and seeds, so that it prints in a line and shrinks towards plain data and default parameters; the arrays are made
from it by inputs.py. ``expect`` says what is known beforehand: "works", "refused", or None where either is right.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from hypothesis import strategies as st
from inputs import (
    ARRAYS,
    CLASSES,
    CONTAINERS,
    NO_CLASSES,
    NO_NUMBERS,
    NO_WEIGHTS,
    NUMBERS,
    ODD_NUMBERS,
    ODD_VALUES,
    ODD_WEIGHTS,
    PLAIN_VALUES,
    REFUSED_ARRAYS,
    VALUES,
    WEIGHTS,
)
from table import TABLE

from sklearn_sgmcmc.network import ACTIVATIONS
from sklearn_sgmcmc.priors import PRIORS
from sklearn_sgmcmc.samplers.registry import SAMPLERS
from sklearn_sgmcmc.schedules import SCHEDULES

WIDTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 95, 96, 97)
"""Beside and between the vector lengths of processors, and around the widest layer that is compiled."""
ROWS = (1, 2, 3, 5, 8, 17, 33)


# --- parameters ---------------------------------------------------------------------------------------------------------------

STRANGE = (
    *(-1, 0, 1, 2, 0.0, 0.5, 1.0, -0.5, 1e-300, 1e-8, 1e300, float("inf"), float("nan"), -0.0),
    *(None, True, "x", "", "auto", (1, 2), [], {}, np.float32(0.5), np.int64(3), np.array(1.0), np.array([1.0, 2.0]), 1j, ...),
)
HARD_TO_STOP = ("checkpoint", "n_jobs", "verbose")
"""They write files, start processes or print where a strange value is right."""


def with_one_strange_field(kind):
    """Return objects of a class with one field set to anything."""
    names = [field.name for field in fields(kind)]
    if not names:
        return st.builds(kind)
    return st.tuples(st.sampled_from(names), st.sampled_from(STRANGE)).map(lambda pair: kind(**{pair[0]: pair[1]}))


def any_object(registry):
    return st.sampled_from(sorted(set(registry.values()), key=lambda kind: kind.__name__)).flatmap(with_one_strange_field)


SAMPLER_OBJECTS = st.tuples(st.sampled_from(sorted(TABLE)), st.integers(0, 99)).map(
    lambda pair: TABLE[pair[0]].make(np.random.RandomState(pair[1]))
)
RIGHT = {
    "hidden_layer_sizes": st.one_of(
        st.sampled_from(WIDTHS), st.lists(st.sampled_from(WIDTHS), max_size=3).map(tuple), st.just(np.array([2, 3]))
    ),
    "activation": st.sampled_from(sorted(ACTIVATIONS)),
    "sampler": st.one_of(st.just("auto"), st.sampled_from(sorted(SAMPLERS)), SAMPLER_OBJECTS),
    "temperature": st.sampled_from([None, 1, 0.1, 1e-6, 2.5, np.float32(0.5)]),
    "learning_rate": st.sampled_from(["auto", None, 1e-3, 1e-12, 0.1, np.float64(0.01)]),
    "schedule": st.sampled_from(sorted(SCHEDULES)),
    "warm_up": st.sampled_from([0, 1, 2, "auto"]),
    "max_iter": st.integers(1, 12),
    "burn_in": st.sampled_from([0, 0.0, 0.5, 0.9, 0.999]),
    "n_draws": st.integers(1, 5),
    "n_chains": st.integers(1, 6),
    "batch_size": st.sampled_from(["auto", 1, 2, 3, 7, 10**9, np.int32(2)]),
    "prior": st.sampled_from(sorted(PRIORS)),
    "prior_scale": st.sampled_from([None, 1.0, 0.1, 10]),
    "standardize": st.booleans(),
    "n_jobs": st.sampled_from([None, 1]),
    "device": st.just("cpu"),
    "dtype": st.sampled_from(["float32", "float64"]),
    "random_state": st.one_of(st.none(), st.integers(0, 2**32 - 1), st.builds(np.random.RandomState, st.integers(0, 9))),
}
OF_CLASSIFIER = {"class_weight": st.sampled_from([None, "balanced", {}, {0: 2.0, 1: 0.5}, {"a": 1.0, "b": 1e-3}, {7: 1.0}])}
OF_REGRESSOR = {
    "noise": st.sampled_from(["auto", "homoscedastic", "heteroscedastic", 0.3, 1, 1e-3]),
    "normalize_y": st.booleans(),
}
OBJECTS = {"sampler": any_object(SAMPLERS), "prior": any_object(PRIORS), "schedule": any_object(SCHEDULES)}
SAFE = (
    "hidden_layer_sizes",
    "activation",
    "warm_up",
    "max_iter",
    "n_draws",
    "n_chains",
    "dtype",
    "random_state",
    "device",
    "n_jobs",
)
"""Right values of these, with any others left alone, leave no reason to refuse ordinary rows."""
FEW = {"hidden_layer_sizes": (3,), "max_iter": 3, "warm_up": 1, "n_draws": 2, "n_chains": 2, "random_state": 0}


@dataclass
class Case:
    """One fit and the rows to predict."""

    classifier: bool
    seed: int
    n_rows: int
    n_columns: int
    values: str
    container: str
    target: str
    weights: str
    params: dict[str, Any]
    predict_values: str
    predict_container: str
    predict_rows: int
    expect: str | None

    def rows(self):
        rng = np.random.default_rng(self.seed)
        return CONTAINERS[self.container](VALUES[self.values](rng, (self.n_rows, self.n_columns)))

    def new_rows(self):
        rng = np.random.default_rng(self.seed + 1)
        return CONTAINERS[self.predict_container](VALUES[self.predict_values](rng, (self.predict_rows, self.n_columns)))

    def targets(self):
        kinds = CLASSES | NO_CLASSES if self.classifier else NUMBERS | ODD_NUMBERS | NO_NUMBERS
        return kinds[self.target](np.random.default_rng(self.seed + 2), self.n_rows)

    def sample_weight(self):
        return (WEIGHTS | ODD_WEIGHTS | NO_WEIGHTS)[self.weights](np.random.default_rng(self.seed + 3), self.n_rows)


@st.composite
def cases(draw):
    """Return a case in which few things at a time are odd: with many, the first check alone would ever be reached."""
    odd = draw(st.sampled_from(["", "", "rows", "container", "target", "weights", "params", "object", "predict"]))
    refused = draw(st.integers(0, 3)) == 0 if odd in ("container", "target", "weights") else False
    classifier = draw(st.booleans())

    def pick(what, usual, unusual=None, never=None):
        table = usual if odd != what else never if refused else unusual
        return draw(st.sampled_from(list(table)))

    right = RIGHT | (OF_CLASSIFIER if classifier else OF_REGRESSOR)
    names = draw(st.lists(st.sampled_from(sorted(right)), max_size=4, unique=True))
    params = FEW | {name: draw(right[name]) for name in names}
    strange = None
    if odd == "params":
        strange = draw(st.sampled_from([name for name in sorted(right) if name not in HARD_TO_STOP]))
        params[strange] = draw(st.sampled_from(STRANGE))
        if strange == "max_iter" and params[strange] is None:
            params[strange] = 1
    if odd == "object":
        strange = draw(st.sampled_from(sorted(OBJECTS)))
        params[strange] = draw(OBJECTS[strange])
    usual_targets, never_targets = (CLASSES, NO_CLASSES) if classifier else (NUMBERS, NO_NUMBERS)
    case = Case(
        classifier=classifier,
        seed=draw(st.integers(0, 999)),
        n_rows=draw(st.sampled_from(ROWS)),
        n_columns=draw(st.sampled_from(WIDTHS)) if draw(st.booleans()) else draw(st.integers(1, 4)),
        values=pick("rows", PLAIN_VALUES, ODD_VALUES),
        container=pick("container", ["float64"], ARRAYS, REFUSED_ARRAYS),
        target=pick("target", usual_targets, usual_targets if classifier else ODD_NUMBERS, never_targets),
        weights=pick("weights", WEIGHTS, ODD_WEIGHTS, NO_WEIGHTS),
        params=params,
        predict_values=pick("predict", PLAIN_VALUES, VALUES),
        predict_container=pick("predict", ["float64"], CONTAINERS),
        predict_rows=draw(st.sampled_from([1, 2, 5])),
        expect=None,
    )
    overflows = case.container == "float16" and case.values == "offset"
    if refused or overflows or case.values in ("nan", "inf", "minus inf") or case.target in ("nan", "inf", "minus inf"):
        case.expect = "refused"
    elif odd in ("", "container", "predict") and set(names) <= set(SAFE) and case.container != "pandas, equal names":
        case.expect = "works"
    return case
