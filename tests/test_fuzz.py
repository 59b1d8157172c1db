"""Whatever one hands to an estimator: finite predictions that mean what they say, or an error that says what is wrong."""

import linecache
import os
import re
import subprocess
import sys
import traceback
import warnings
from dataclasses import fields
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import WIDTHS, cases
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from inputs import REFUSED_ARRAYS, dense
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from test_kernels import needs_kernel

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor, kernels
from sklearn_sgmcmc.batches import Batch, DenseRows
from sklearn_sgmcmc.likelihoods import Categorical, FixedNoise, HeteroscedasticNoise, HomoscedasticNoise
from sklearn_sgmcmc.network import ACTIVATIONS, MLP
from sklearn_sgmcmc.posterior import Posterior
from sklearn_sgmcmc.priors import PRIORS, Normal
from sklearn_sgmcmc.samplers.registry import SAMPLERS
from sklearn_sgmcmc.schedules import SCHEDULES

NAMES = {
    *("X", "y", "sample_weight", "n_total", "classes", "features", "quantiles", "coverage", "n_samples"),
    *(field.name for kind in (BayesianMLPClassifier, BayesianMLPRegressor) for field in fields(kind)),
    *(field.name for registry in (SAMPLERS, PRIORS, SCHEDULES) for kind in registry.values() for field in fields(kind)),
}
"""What an error may be about."""

QUIET = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def assert_clear(error):
    """The error was raised on purpose, by us or by scikit-learn, and names what it is about."""
    assert isinstance(error, ValueError | TypeError), f"{type(error).__name__} is no refusal"
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert not re.search("site-packages/(torch|numpy|scipy)/", last.filename), f"the error ends in {last.filename}"
    if "sklearn_sgmcmc" in last.filename:
        line = linecache.getline(last.filename, last.lineno).strip()
        assert line.startswith("raise"), f"{last.filename}:{last.lineno} did not mean to raise: {line}"
        assert NAMES & set(re.findall(r"\w+", str(error))), f"the error names nothing: {error}"


def assert_quiet(caught):
    """No warning but those that are meant for the user."""
    for warning in caught:
        of_input = re.match(
            "sample_weight|X (has|does not have valid) feature names|The number of unique classes", str(warning.message)
        )
        known = issubclass(warning.category, ConvergenceWarning | DataConversionWarning) or of_input
        assert known, f"{warning.category.__name__} at {warning.filename}:{warning.lineno}: {warning.message}"


def world(*, random):
    """Return the global state that nobody but the user may change; numpy's generator stands behind ``random_state=None``."""
    of_numpy = np.random.get_state() if random else (None, np.array([]))
    return (
        (of_numpy[1].tobytes(), of_numpy[2:], torch.get_rng_state().numpy().tobytes()),
        (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        (tuple(np.geterr().items()), torch.are_deterministic_algorithms_enabled(), len(warnings.filters)),
    )


def attempt(call, *, random=True):
    """Return the result of a call, or None if it was refused clearly."""
    before = world(random=random)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as error:
            assert_clear(error)
            result = None
    assert_quiet(caught)
    assert world(random=random) == before
    return result


def parts(result):
    """Return the arrays of a result."""
    values = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else [result]
    return [np.asarray(value) for value in values]


def same(a, b):
    return all(np.array_equal(left, right) for left, right in zip(parts(a), parts(b), strict=True))


def close(a, b, dtype, scale=0.0):
    """Whether numbers agree to the precision of a dtype, relative to the largest; below the least normal one digits are lost."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    largest = max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0), scale)
    unit = max(largest, float(np.finfo(dtype).tiny))
    return np.allclose(a / unit, b / unit, rtol=0, atol=3e-4 if dtype == np.float32 else 1e-6)


def methods(model, y):
    """Return the predictions of a model by name, as functions of the rows."""
    shared = {"predict": model.predict, "posterior": model.sample_posterior, "uncertainty": model.predict_uncertainty}
    if isinstance(model, BayesianMLPClassifier):
        return shared | {
            "proba": lambda X: model.predict_proba(X, return_std=True),
            "log_proba": model.predict_log_proba,
            "some": lambda X: model.sample_posterior(X, n_draws=1, random_state=0),
        }
    return shared | {
        "std": lambda X: model.predict(X, return_std=True),
        "noise": model.predict_noise,
        "quantiles": lambda X: model.predict_quantiles(X, [0.01, 0.5, 0.975]),
        "interval": model.predict_interval,
        "mixture": model.predict_mixture,
        "y": lambda X: model.sample_y(X, n_samples=3, random_state=0),
        "log_density": lambda X: model.log_predictive_density(X, np.resize(y, (len(dense(X)), *y.shape[1:]))),
    }


ROW_AXIS = {"posterior": 1, "some": 1, "quantiles": 1, "mixture": 1}


def check_predictions(model, X, y, *, must_work):
    """Check all predictions of a fitted model at rows; return by name those that were not refused."""
    n, known = len(dense(X)), X.dtype if hasattr(X, "dtype") else None
    dtype = np.float32 if known == np.float32 else np.float64
    first_row = (X.tocsr() if hasattr(X, "tocsr") else X)[:1]
    found = {}
    for name, method in methods(model, y).items():
        result = attempt(lambda method=method: method(X))
        if result is None:
            assert not must_work, f"{name} was refused"
            continue
        found[name] = result
        for part in parts(result):
            assert part.shape[ROW_AXIS.get(name, 0)] == n, name
            if np.issubdtype(part.dtype, np.number):
                assert np.isfinite(part).all(), f"{name} is not finite"
            if name not in ("predict", "uncertainty", "log_density") and hasattr(X, "dtype"):
                assert part.dtype == dtype, f"{name} has dtype {part.dtype} for rows of {known}"
        assert same(attempt(lambda method=method: method(X)), result), f"{name} differs at the second call"
        if n > 1 and name not in ("y", "log_density"):
            alone = attempt(lambda method=method: method(first_row))
            assert alone is not None, f"{name} of the first row alone was refused"
            largest = max((np.abs(part).max() for part in parts(result)), default=0.0) if name == "uncertainty" else 0.0
            for one, all_of_them in zip(parts(alone), parts(result), strict=True):
                first = np.take(all_of_them, [0], axis=ROW_AXIS.get(name, 0))
                ok = close(one, first, dtype, largest) if np.issubdtype(one.dtype, np.floating) else np.array_equal(one, first)
                assert ok, f"{name} of the first row alone differs"
    (check_classes if isinstance(model, BayesianMLPClassifier) else check_numbers)(model, found, n, dtype)
    return found


def check_classes(model, found, n, dtype):
    classes, tolerance = model.classes_, 1e-5 if dtype == np.float32 else 1e-12
    if "proba" in found:
        proba, std = found["proba"]
        assert proba.shape == std.shape == (n, len(classes))
        assert (proba >= 0).all()
        assert (proba <= 1).all()
        assert (std >= 0).all()
        assert np.abs(proba.sum(axis=1) - 1).max() <= tolerance
        np.testing.assert_array_equal(found["predict"], classes[proba.argmax(axis=1)])
        assert found["predict"].dtype == classes.dtype
        if "log_proba" in found:
            assert found["log_proba"].shape == proba.shape
            assert np.abs(np.exp(found["log_proba"]) - proba).max() < 1e-5
        if "posterior" in found:
            assert np.abs(found["posterior"].mean(axis=0) - proba).max() < 1e-5
            assert found["some"].shape == (1, *proba.shape)
    if "uncertainty" in found:
        total, aleatoric, epistemic = (found["uncertainty"][name] for name in ("total", "aleatoric", "epistemic"))
        assert total.shape == (n,)
        np.testing.assert_allclose(total, aleatoric + epistemic, rtol=1e-12, atol=1e-12)
        assert min(total.min(), aleatoric.min()) >= 0
        assert epistemic.min() >= -1e-12
        assert total.max() <= np.log(len(classes)) + 1e-12


def check_numbers(model, found, n, dtype):
    if "std" in found:
        mean, std = found["std"]
        assert mean.shape == std.shape == (n, *model._fuzzed_y_shape[1:])
        np.testing.assert_array_equal(mean, found["predict"])
        assert (std >= 0).all()
        if "noise" in found:
            assert (found["noise"] <= std * (1 + 1e-5)).all()
        if "posterior" in found:
            unit = max(np.abs(found["posterior"]).max(), np.finfo(dtype).tiny)
            assert close((found["posterior"].astype(np.float64) / unit).mean(axis=0), mean / unit, dtype, 1.0)
        if "uncertainty" in found:
            assert close(np.sqrt(found["uncertainty"].total), std, dtype)
    if "uncertainty" in found:
        total, aleatoric, epistemic = (found["uncertainty"][name] for name in ("total", "aleatoric", "epistemic"))
        np.testing.assert_allclose(total, aleatoric + epistemic, rtol=1e-9)
        assert min(aleatoric.min(), epistemic.min()) >= 0
    if "quantiles" in found:
        assert (np.diff(found["quantiles"], axis=0) >= 0).all()
    if "interval" in found:
        lower, upper = found["interval"]
        assert (lower <= upper).all()


def content(data):
    """Return a copy of what an input holds, to be compared afterwards."""
    if hasattr(data, "tocoo"):
        return data.toarray().tolist()
    return data.to_numpy().tolist() if hasattr(data, "to_numpy") else repr(data) if not hasattr(data, "tolist") else data.tolist()


def holds(case):
    """Run one case."""
    X, y, weight = case.rows(), case.targets(), case.sample_weight()
    before = [repr(content(data)) for data in (X, y, weight)]
    estimator = (BayesianMLPClassifier if case.classifier else BayesianMLPRegressor)(**case.params)
    model = attempt(lambda: estimator.fit(X, y, weight), random=estimator.random_state is not None)
    assert [repr(content(data)) for data in (X, y, weight)] == before, "fit wrote into its inputs"
    if model is None:
        assert case.expect != "works", "fit was refused"
        assert not hasattr(estimator, "draws_")
        return "refused"
    assert case.expect != "refused", "fit was not refused"
    assert np.isfinite(model.draws_).all()
    assert isinstance(model.summary(), str)
    if case.container not in ("float64", "broadcast") and isinstance(estimator.random_state, int):  # same rows, same posterior
        plain = attempt(lambda: clone(estimator).fit(dense(X), y, weight))
        assert plain is not None
        np.testing.assert_array_equal(plain.draws_, model.draws_)
    model._fuzzed_y_shape = np.shape(y)
    targets = np.asarray(y, dtype=np.float64) if not case.classifier else None
    ordinary = case.expect == "works"
    check_predictions(model, np.array(dense(X)), targets, must_work=ordinary)
    new = case.new_rows()
    if case.predict_container not in REFUSED_ARRAYS and np.isfinite(dense(new)).all():
        check_predictions(model, new, targets, must_work=False)
        return "works"
    for name, method in methods(model, targets).items():
        if name != "log_density":
            assert attempt(lambda method=method: method(new)) is None, f"{name} was not refused"
    return "works"


@settings(max_examples=250, derandomize=True, **QUIET)
@given(cases())
def test_a_case_works_or_is_refused_with_reason(case):
    holds(case)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_cases_work_or_are_refused_with_reason(part):
    @seed(part)
    @settings(max_examples=250, **QUIET)
    @given(cases())
    def run(case):
        holds(case)

    run()


# --- the compiled kernel ------------------------------------------------------------------------------------------------------


def plainly(values):
    return values.contiguous()


def in_a_sea_of_nan(values):
    """Return a view with the same numbers, and NaN before, behind and between its rows."""
    sea = torch.full([size + 5 for size in values.shape], torch.nan, dtype=values.dtype)
    view = sea[tuple(slice(2, 2 + size) for size in values.shape)]
    view.copy_(values)
    return view


LIKELIHOODS = {
    "categorical": Categorical,
    "fixed": lambda n: FixedNoise((0.5,) * n),
    "homoscedastic": HomoscedasticNoise,
    "heteroscedastic": HeteroscedasticNoise,
}


def assert_kernel_agrees_with_torch(widths, activation, likelihood, n_chains, n_rows, dtype, *, table, wrap):
    """Outputs and gradients are those of torch, and nothing beside the arrays is read."""
    random = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=random, dtype=dtype)

    *hidden, n_targets = widths
    model = LIKELIHOODS[likelihood](n_targets)
    posterior = Posterior(MLP((*hidden, model.n_outputs), activation), model, Normal(), 9.0, 9.0)
    theta = wrap(0.2 * normal(n_chains, posterior.n_params))
    of_class = torch.eye(n_targets, dtype=dtype)[torch.randint(n_targets, (n_rows + 2,), generator=random)]
    x, target = normal(n_rows + 2, hidden[0]), of_class if likelihood == "categorical" else normal(n_rows + 2, n_targets)
    batch = DenseRows(x, target, torch.rand(n_rows + 2, generator=random, dtype=dtype)).take(
        torch.randint(n_rows + 2, (n_chains, n_rows), generator=random)
    )
    if not table:
        batch = Batch(*(wrap(part.contiguous()) for part in batch))
    potential = posterior.bind(batch)
    if posterior.compiled is None:  # wide: torch's
        return
    assert potential._kernel(theta) is not None
    reference = posterior.network.forward(theta, batch.x)
    expected = potential._pull(theta, *reference)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    for found, other in (
        (potential.grad(theta), expected),
        (potential.value_and_grad(theta)[1], expected),
        (posterior.network.outputs(theta, batch.x), reference[0]),
    ):
        torch.testing.assert_close(found, other, rtol=tolerance, atol=tolerance * (1.0 + float(other.abs().max())))


@needs_kernel
@settings(max_examples=60, derandomize=True, **QUIET)
@given(
    widths=st.lists(st.sampled_from(WIDTHS), min_size=2, max_size=4).map(tuple),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    likelihood=st.sampled_from(sorted(LIKELIHOODS)),
    n_chains=st.sampled_from([1, 2, 5]),
    n_rows=st.sampled_from([1, 2, 5, 6, 7, 13]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    table=st.booleans(),
)
def test_the_kernel_keeps_to_its_arrays(widths, activation, likelihood, n_chains, n_rows, dtype, table):
    assert_kernel_agrees_with_torch(widths, activation, likelihood, n_chains, n_rows, dtype, table=table, wrap=in_a_sea_of_nan)


def compare_many_shapes():
    """What runs under the address sanitizer: all pairs of widths, in a hidden and in the last layer."""
    assert kernels.network(torch.float32) is not None, kernels.status()
    for number, (n_in, n_out) in enumerate(product(WIDTHS, repeat=2)):
        likelihood = sorted(LIKELIHOODS)[number % len(LIKELIHOODS)]
        for dtype, (n_chains, n_rows) in product([torch.float32, torch.float64], [(1, 1), (2, 7)]):
            shapes = (n_in, n_out, n_in), "relu", likelihood, n_chains, n_rows, dtype
            for table in (False, True):
                assert_kernel_agrees_with_torch(*shapes, table=table, wrap=plainly)


@pytest.mark.slow
@needs_kernel
def test_the_kernel_passes_the_address_sanitizer(tmp_path):
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("gcc has no address sanitizer")
    source = (
        "from sklearn_sgmcmc.kernels import _library;"
        "checks = '-fsanitize=address', '--param=asan-instrumentation-with-call-threshold=0', '-g';"  # as calls: compiled fast
        "_library.FLAGS = (*_library.FLAGS, *checks);"
        "import test_fuzz; test_fuzz.compare_many_shapes()"
    )
    environment = os.environ | {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
