"""Models are saved small, without tensors, and are read in another process, without a GPU, and by another release."""

import copy
import io
import pickle
import subprocess
import sys
import warnings

import cloudpickle
import joblib
import numpy as np
import pytest
import skops.io
from sklearn.base import clone
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sklearn_sgmcmc
from sklearn_sgmcmc import BatchedGridSearchCV, BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_sgmcmc.estimators import _persistence
from sklearn_sgmcmc.priors import Normal, PriorSwitch, SpikeSlab
from sklearn_sgmcmc.samplers import MSGLD, SAMPLERS, Sampler
from sklearn_sgmcmc.schedules import Cyclical

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.RandomState(0)
X = RNG.randn(40, 3)
Y = X[:, 0] + 0.1 * RNG.randn(40)
FAST = {"hidden_layer_sizes": (4,), "warm_up": 0, "max_iter": 20, "n_draws": 3, "random_state": 0}

MODELS = {
    "classes": BayesianMLPClassifier(**FAST),
    "strings": BayesianMLPClassifier(sampler="mala", batch_size=40, **FAST),
    "noise": BayesianMLPRegressor(**FAST),
    "one noise": BayesianMLPRegressor(noise="homoscedastic", sampler="baoab", **FAST),
    "known noise": BayesianMLPRegressor(noise=0.5, sampler="sgnht", **FAST),
    "objects": BayesianMLPRegressor(sampler=MSGLD(1.0), prior=PriorSwitch(), schedule=Cyclical(n_cycles=2), **FAST),
    "pruned": BayesianMLPClassifier(prior="spike_slab", **FAST),
}
OF_PARAMETERS = {"objects": {MSGLD, PriorSwitch, Normal, SpikeSlab, Cyclical}}
"""Classes that the user passes, with what is inside of them."""


def fitted(name):
    y = np.where(Y > 0, "up", "down") if name == "strings" else Y > 0 if name in ("classes", "pruned") else Y
    return clone(MODELS[name]).fit(X, y)


def answers(model):
    """Return what a model says, in a form that prints to the last bit."""
    method = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    return repr([part.tolist() for part in getattr(model, method)(X, return_std=True)])


def with_joblib(model):
    buffer = io.BytesIO()
    joblib.dump(model, buffer, compress=3)
    return joblib.load(io.BytesIO(buffer.getvalue()))


def with_skops(model):
    data = skops.io.dumps(model)
    return skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))


WAYS = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "cloudpickle": lambda model: cloudpickle.loads(cloudpickle.dumps(model)),
    "joblib": with_joblib,
    "skops": with_skops,
    "copy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_answers_as_before(name, way):
    model = fitted(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = WAYS[way](model)
    assert answers(again) == answers(model)
    assert again.summary() == model.summary()
    assert vars(again).keys() == vars(model).keys()


READ = """
import sys, json, pickle, joblib, skops.io
rows = json.load(open("rows"))
for name, method in (("classes", "predict_proba"), ("noise", "predict")):
    trusted = skops.io.get_untrusted_types(file=name + ".skops")
    models = [pickle.load(open(f"{name}.{way}", "rb")) for way in ("pickle", "cloudpickle")]
    models += [joblib.load(name + ".joblib"), skops.io.load(name + ".skops", trusted=trusted)]
    for model in models:
        print(repr([part.tolist() for part in getattr(model, method)(rows, return_std=True)]))
"""


def test_saved_models_answer_alike_in_a_fresh_process(tmp_path):
    expected = []
    for name in ("classes", "noise"):
        model = fitted(name)
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(model))
        (tmp_path / f"{name}.cloudpickle").write_bytes(cloudpickle.dumps(model))
        joblib.dump(model, tmp_path / f"{name}.joblib")
        skops.io.dump(model, tmp_path / f"{name}.skops")
        expected += 4 * [answers(model)]
    (tmp_path / "rows").write_text(repr(X.tolist()))
    run = subprocess.run([sys.executable, "-c", READ], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == expected


@pytest.mark.parametrize("name", MODELS)
def test_skops_is_asked_to_trust_the_estimator_its_sampler_and_what_was_passed(name):
    model = fitted(name)
    expected = {type(model), type(model.sampler_)} | OF_PARAMETERS.get(name, set())
    found = skops.io.get_untrusted_types(data=skops.io.dumps(model))
    assert set(found) == {f"{kind.__module__}.{kind.__name__}" for kind in expected}
    assert not any(part.startswith("_") for kind in found for part in kind.split("."))


def test_a_pipeline_around_a_model_adds_nothing_to_trust():
    pipe = make_pipeline(StandardScaler(), MODELS["classes"]).fit(X, Y > 0)
    found = skops.io.get_untrusted_types(data=skops.io.dumps(pipe))
    assert found == ["sklearn_sgmcmc.BayesianMLPClassifier", "sklearn_sgmcmc.samplers.microcanonical.MCLMC"]


class Recorder(pickle.Unpickler):
    """Notes the modules of all classes and functions that a pickle names."""

    def __init__(self, data):
        super().__init__(io.BytesIO(data))
        self.modules = set()

    def find_class(self, module, name):
        self.modules.add(module.split(".")[0])
        return super().find_class(module, name)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_torch_is_in_a_pickle(sampler):
    """With device="auto" a fit on a GPU leaves the same attributes: draws and all else are copied to numpy."""
    needs_all = "full_batch" in SAMPLERS[sampler].needs
    model = BayesianMLPRegressor(**(FAST | {"sampler": sampler, "batch_size": "auto" if needs_all else 16, "max_iter": 4})).fit(
        X, Y
    )
    data = pickle.dumps(model)
    recorder = Recorder(data)
    recorder.load()
    assert recorder.modules <= {"sklearn_sgmcmc", "numpy", "builtins"}
    assert b"torch" not in data


@pytest.mark.parametrize("name", MODELS)
def test_attributes_of_a_fit_are_numpy_arrays_and_plain_values(name):
    def check(value):
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list | tuple):
            for inner in value:
                check(inner)
        else:
            assert isinstance(value, str | bool | int | float | slice | np.ndarray | Sampler | None), type(value)

    state = fitted(name).__getstate__()
    check([value for key, value in state.items() if key not in MODELS[name].get_params()])


def test_a_model_for_a_gpu_is_read_and_used_without_one():
    """A GPU given by name stays a name in the file and is asked for by ``fit`` alone."""
    model = pickle.loads(pickle.dumps(fitted("noise").set_params(device="cuda:7")))
    assert model.device == "cuda:7"
    assert answers(model) == answers(fitted("noise"))


# --- versions --------------------------------------------------------------------------------------------------------------


def test_a_file_tells_its_format_and_the_release_that_wrote_it():
    state = fitted("noise").__getstate__()
    assert (state["_format"], state["_package_version"]) == (_persistence.FORMAT, sklearn_sgmcmc.__version__)


@pytest.mark.parametrize("way", ["pickle", "joblib", "skops"])
def test_a_file_of_another_release_warns_as_scikit_learn_does(way, monkeypatch):
    model = fitted("noise")
    version = sklearn_sgmcmc.__version__
    state = model.__getstate__() | {"_package_version": "0.0.1"}
    monkeypatch.setattr(BayesianMLPRegressor, "__getstate__", lambda model: state)
    with pytest.warns(
        InconsistentVersionWarning, match=rf"BayesianMLPRegressor from version 0\.0\.1 of .* using version {version}"
    ):
        again = WAYS[way](model)
    assert answers(again) == answers(model)


def test_a_file_without_a_version_warns():
    model = fitted("noise")
    state = {name: value for name, value in model.__getstate__().items() if name not in ("_format", "_package_version")}
    again = BayesianMLPRegressor()
    with pytest.warns(InconsistentVersionWarning, match="from version unknown"):
        again.__setstate__(state)
    assert answers(again) == answers(model)


def test_a_file_of_a_newer_format_is_an_error_with_the_fix(monkeypatch):
    model = fitted("noise")
    monkeypatch.setattr(_persistence, "FORMAT", 2)
    monkeypatch.setattr(_persistence.sklearn_sgmcmc, "__version__", "9.0")
    data = pickle.dumps(model)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"saved by sklearn-sgmcmc 9\.0 in format 2, .* reads formats up to 1: upgrade"):
        pickle.loads(data)


def test_a_fitted_search_is_saved_without_tensors():
    search = BatchedGridSearchCV(MODELS["classes"], {"prior_scale": [0.5, 1.0]}, cv=2).fit(X, Y > 0)
    data = pickle.dumps(search)
    assert b"torch" not in data
    np.testing.assert_array_equal(pickle.loads(data).predict_proba(X), search.predict_proba(X))
