"""Any calls in any order: each works or is refused, a refused one changes nothing, and a saved model goes on as its original."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
from cases import FEW, OF_CLASSIFIER, OF_REGRESSOR, RIGHT, STRANGE
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from inputs import CLASSES, NUMBERS, ODD_NUMBERS, VALUES
from sklearn.base import clone
from test_fuzz import QUIET, attempt, check_predictions

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.noise import BlockNoise
from sklearn_sgmcmc.samplers import SAMPLERS

N_COLUMNS = 3
OFTEN = {"sampler": st.sampled_from(["auto", *sorted(SAMPLERS)]), "warm_start": st.booleans()}
"""Parameters that are changed more often than others."""
NEVER = ("n_jobs", "random_state", "device")
"""They start processes or look for a GPU, and what two runs without a seed draw is not to be compared."""
ROWS = st.one_of(st.just("normal"), st.sampled_from(sorted(VALUES)))
KINDS = st.one_of(st.just(0), st.integers(0, 99))
"""Every other call brings what the last one has brought: else most are refused."""


def content(model):
    """Return all that a model holds, as bytes."""
    return pickle.dumps(model)


class Sequence(RuleBasedStateMachine):
    """One estimator, called in any order."""

    @initialize(classifier=st.booleans(), sampler=OFTEN["sampler"], warm_start=st.booleans())
    def begin(self, classifier, sampler, warm_start):
        kind = BayesianMLPClassifier if classifier else BayesianMLPRegressor
        self.model = kind(**FEW, sampler=sampler, warm_start=warm_start)
        self.right = RIGHT | OFTEN | (OF_CLASSIFIER if classifier else OF_REGRESSOR)

    def rows(self, number, n_rows, values, kind):
        rng = np.random.default_rng(number)
        X = VALUES[values](rng, (n_rows, N_COLUMNS))
        table = CLASSES if isinstance(self.model, BayesianMLPClassifier) else NUMBERS | ODD_NUMBERS
        return X, table[list(table)[kind % len(table)]](rng, n_rows)

    def advance(self, call):
        """Make a call that changes the model: of itself, and of a copy that was saved; refused or not, both must end alike."""
        before = content(self.model)
        copy = pickle.loads(before)
        done = attempt(lambda: call(self.model))
        again = attempt(lambda: call(copy))
        assert (done is None) == (again is None)
        if done is None:
            assert content(self.model) == before, "a call that was refused has changed the model"
            return False
        assert_same(self.model, copy)
        assert np.isfinite(self.model.draws_).all()
        return True

    @rule(
        number=st.integers(0, 9),
        n_rows=st.sampled_from([1, 2, 5, 17]),
        values=ROWS,
        kind=KINDS,
        weighted=st.booleans(),
    )
    def fit(self, number, n_rows, values, kind, weighted):
        X, y = self.rows(number, n_rows, values, kind)
        weight = np.arange(n_rows) % 3 + (n_rows < 2) if weighted else None
        cold = not (self.model.warm_start and hasattr(self.model, "draws_"))
        if self.advance(lambda model: model.fit(X, y, weight)) and cold:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fresh = clone(self.model).fit(X, y, weight)
            assert_same(self.model, fresh)  # whatever the model was before

    @precondition(lambda self: hasattr(self.model, "partial_fit"))
    @rule(
        number=st.integers(0, 9),
        n_rows=st.sampled_from([1, 2, 5, 17]),
        values=ROWS,
        kind=KINDS,
        n_total=st.sampled_from([None, None, 17, 100.0, 1e9, -1, "x"]),
        named=st.booleans(),
    )
    def partial_fit(self, number, n_rows, values, kind, n_total, named):
        X, y = self.rows(number, n_rows, values, kind)
        arguments = {"n_total": n_total}
        if isinstance(self.model, BayesianMLPClassifier) and named:
            arguments["classes"] = getattr(self.model, "classes_", np.unique(y))
        self.advance(lambda model: model.partial_fit(X, y, **arguments))

    @rule(
        name=st.sampled_from(["fit", "partial_fit"]),
        at=st.integers(0, 20),
        error=st.sampled_from([KeyboardInterrupt, MemoryError]),
        number=st.integers(0, 9),
        kind=KINDS,
    )
    def break_off(self, name, at, error, number, kind):
        X, y = self.rows(number, 5, "normal", kind)
        before, count, draw = content(self.model), itertools.count(), BlockNoise.__call__

        def failing(noise, like):
            if next(count) == at:
                raise error
            return draw(noise, like)

        def call():
            if not hasattr(self.model, name):  # the sampler takes no chunks
                return
            try:
                getattr(self.model, name)(X, y)
            except error:
                kept = error is KeyboardInterrupt and name == "fit" and content(self.model) != before
                assert content(self.model) == before or (kept and "interrupted" in self.model.summary())

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BlockNoise, "__call__", failing)
            attempt(call)

    @rule(data=st.data(), strange=st.booleans())
    def set_params(self, data, strange):
        names = [name for name in sorted(self.right) if name not in NEVER]
        name = data.draw(st.sampled_from([*OFTEN, *names]))
        value = data.draw(st.sampled_from(STRANGE) if strange and name != "max_iter" else self.right[name])
        self.model.set_params(**{name: value})

    @rule()
    def set_params_back(self):
        self.model.set_params(**(type(self.model)().get_params(deep=False) | FEW))

    @rule()
    def save_and_load(self):
        self.model = pickle.loads(pickle.dumps(self.model))

    @rule()
    def begin_anew(self):
        self.model = clone(self.model)
        assert not hasattr(self.model, "draws_")

    @rule(number=st.integers(0, 9), values=ROWS)
    @precondition(lambda self: hasattr(self.model, "draws_"))
    def predict(self, number, values):
        X, _ = self.rows(number, 4, values, 0)
        if not np.isfinite(X).all():
            return
        y = None
        if isinstance(self.model, BayesianMLPRegressor):
            self.model._fuzzed_y_shape = (4, self.model.n_outputs_)[: self.model._y_ndim]
            y = np.zeros(self.model._fuzzed_y_shape)
        before = content(self.model)
        check_predictions(self.model, X, y, must_work=False)
        assert content(self.model) == before, "a prediction has changed the model"
        self.model.__dict__.pop("_fuzzed_y_shape", None)

    @invariant()
    def can_be_described(self):
        if not hasattr(self, "model"):
            return
        if not hasattr(self.model, "draws_"):
            assert attempt(lambda: self.model.predict(np.zeros((1, N_COLUMNS)))) is None
            return
        before = content(self.model)
        assert isinstance(attempt(self.model.summary), str)
        assert attempt(self.model.diagnostics) is not None
        assert content(self.model) == before
        assert attempt(lambda: self.model.predict(np.zeros((1, N_COLUMNS)) + self.model._x_scaling.mean)) is not None


def assert_same(model, other):
    """Two models hold the same, and would go on alike."""
    mine, others = (
        {name: value if isinstance(value, dict | np.ndarray) else repr(value) for name, value in each.__getstate__().items()}
        for each in (model, other)
    )
    np.testing.assert_equal(mine, others)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_calls_in_any_order():
    run_state_machine_as_test(Sequence, settings=settings(max_examples=30, stateful_step_count=12, derandomize=True, **QUIET))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_calls_in_any_order(part):
    run_state_machine_as_test(seed(part)(Sequence), settings=settings(max_examples=60, stateful_step_count=20, **QUIET))
