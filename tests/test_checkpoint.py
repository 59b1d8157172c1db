"""A fit that is killed and started again ends bit for bit where it would have ended."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import joblib
import kills
import numpy as np
import pytest
from kills import CASES, fit, problem
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import sklearn_sgmcmc.checkpoint as checkpoints
from sklearn_sgmcmc import BatchedGridSearchCV, BayesianMLPClassifier
from sklearn_sgmcmc._digest import digest
from sklearn_sgmcmc.checkpoint import Keeper
from sklearn_sgmcmc.samplers import MSGLD, SGRLD

KILLS = Path(kills.__file__)


class Killed(BaseException):
    """Ends a fit like a signal: nothing in the package catches it."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


@pytest.fixture
def always(monkeypatch):
    """Let a checkpoint be written after every step."""
    monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", np.inf)


@contextmanager
def ended_after(monkeypatch, n_steps, error):
    """Have a fit write at every step and raise an error after so many of them."""
    left = iter(range(n_steps - 1))
    write = Keeper.write

    def write_and_end(keeper, stage, step, state, parts):
        write(keeper, stage, step, state, parts)
        if next(left, None) is None:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "INTERVAL", 0.0)
        patch.setattr(checkpoints, "SHARE", np.inf)
        patch.setattr(Keeper, "write", write_and_end)
        yield


def leave(path, monkeypatch, case="msgld", n_steps=40, error=Killed, **parameters):
    """Leave the checkpoint of a fit that ended after so many steps."""
    with ended_after(monkeypatch, n_steps, error), pytest.raises(error):
        fit(case, checkpoint=path, **parameters)
    assert path.exists() or path.is_dir()


def assert_same(one, two):
    np.testing.assert_array_equal(one.draws_, two.draws_)
    np.testing.assert_array_equal(one.potential_curve_, two.potential_curve_)
    np.testing.assert_array_equal(one.learning_rate_, two.learning_rate_)


# --- the same bits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_a_fit_killed_at_random_steps_goes_on_bit_for_bit(case, path, monkeypatch):
    rng = np.random.default_rng()
    due = Keeper.due

    def due_or_killed(keeper):
        if rng.random() < 0.03:
            raise Killed
        return due(keeper) and rng.random() < 0.2

    monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", np.inf)
    monkeypatch.setattr(Keeper, "due", due_or_killed)
    while True:
        try:
            model = fit(case, checkpoint=path)
            break
        except Killed:
            assert path.exists()
    assert_same(model, fit(case))
    assert list(path.parent.iterdir()) == []


def test_a_process_killed_by_a_signal_goes_on_in_another(path):
    process = subprocess.Popen([sys.executable, KILLS, "fit", "heteroscedastic", path])
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(np.random.default_rng().uniform(0, 0.3))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert_same(fit("heteroscedastic", checkpoint=path), fit("heteroscedastic"))


def killed(count, folder):
    run = subprocess.run(
        [sys.executable, KILLS, str(count), str(np.random.default_rng().integers(10**9)), folder],
        stdout=subprocess.PIPE,
        check=True,
    )
    seen = json.loads(run.stdout.splitlines()[-1])
    assert seen["kills"] >= count
    assert seen["changed"] == seen["left"] == 0
    return seen


def test_three_kills_change_no_bit(tmp_path):
    killed(3, tmp_path)


@pytest.mark.slow
def test_500_kills_change_no_bit(tmp_path):
    seen = killed(500, tmp_path)
    assert seen["during a write"] > 50
    assert seen["resumed"] > 250


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_the_number_of_workers_may_change(before, after, path, monkeypatch):
    with joblib.parallel_config("threading"):
        leave(path, monkeypatch, "workers", n_jobs=before)
        assert_same(fit("workers", checkpoint=path, n_jobs=after), fit("workers"))
    assert list(path.parent.iterdir()) == []


def test_a_fit_without_a_seed_keeps_its_random_streams(path, monkeypatch):
    np.random.seed(1)
    whole = fit("msgld", random_state=None)
    np.random.seed(1)
    leave(path, monkeypatch, random_state=None)
    assert_same(fit("msgld", random_state=None, checkpoint=path), whole)
    with pytest.raises(AssertionError):
        assert_same(fit("msgld", random_state=None, checkpoint=path), whole)


# --- interruptions and failures ----------------------------------------------------------------------------------------------


def test_an_interrupted_fit_keeps_its_draws_and_can_go_on(path, monkeypatch):
    estimator, parameters = CASES["msgld"]
    model = estimator(**parameters, checkpoint=path)
    said = pytest.warns(ConvergenceWarning, match="Fit again to go on from the checkpoint")
    with ended_after(monkeypatch, 100, KeyboardInterrupt), pytest.raises(KeyboardInterrupt), said:
        model.fit(*problem(estimator))
    whole = fit("msgld")
    assert 0 < len(model.draws_) < len(whole.draws_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(*problem(estimator))
    assert_same(model, whole)


def test_a_full_disk_is_said_once_and_the_fit_goes_on(path, always, monkeypatch):
    leave(path, monkeypatch)

    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    estimator, parameters = CASES["msgld"]
    with pytest.warns(RuntimeWarning, match=r"could not be written after step 41 \(No space left on device\)") as log:
        model = estimator(**parameters, checkpoint=path).fit(*problem(estimator))
    assert sum(issubclass(warning.category, RuntimeWarning) for warning in log) == 1
    assert_same(model, fit("msgld"))


def test_a_write_that_fails_leaves_the_last_file(path, monkeypatch):
    leave(path, monkeypatch)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *names: (_ for _ in ()).throw(Killed))
        patch.setattr(checkpoints, "INTERVAL", 0.0)
        with pytest.raises(Killed):
            fit("msgld", checkpoint=path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["missing/run.npz", "file/run.npz", 500 * "long" + "run.npz"])
def test_a_path_that_cannot_be_written_is_refused_at_once(tmp_path, name, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("sklearn_sgmcmc.estimators._base.sample_chains", None)
    with pytest.raises(ValueError, match=r"checkpoint=.*run.npz' cannot be written \(.*\): name a file in a folder that exists"):
        fit("msgld", checkpoint=tmp_path / name)


@pytest.mark.parametrize("value", [3, True, "", b"run.npz", "run\0.npz"])
def test_a_checkpoint_that_is_no_path_is_refused(value):
    with pytest.raises(ValueError, match=r"checkpoint=.* must be the path of a file or a folder, or None"):
        fit("msgld", checkpoint=value)


def test_a_fit_whose_chains_all_diverge_leaves_nothing(path):
    with pytest.raises(ValueError, match="diverged"):
        fit("msgld", learning_rate=1e6, checkpoint=path)
    assert list(path.parent.iterdir()) == []


# --- what a file belongs to --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_draws": 5}, "n_draws is 5 and was 6"),
        ({"random_state": 1}, "random_state is"),
        ({"random_state": None}, "random_state is any and was"),
        ({"n_chains": 8, "dtype": "float64"}, "n_chains is 8 and was 4, dtype is 'float64' and was 'float32'|dtype"),
        ({"sampler": MSGLD(smoothing=0.5)}, r"sampler is MSGLD\(.*\) and was 'msgld'"),
        ({"standardize": False}, r"standardize is False and was True, X, y or weights \(hash\) is"),
    ],
)
def test_another_fit_is_refused_and_the_difference_named(change, said, path, monkeypatch):
    leave(path, monkeypatch)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"run.npz' belongs to another fit: .*{said}.*\. Repeat that fit to resume it; to start"):
        fit("msgld", checkpoint=path, **change)
    assert path.read_bytes() == before


def test_other_rows_are_refused(path, monkeypatch):
    leave(path, monkeypatch)
    estimator, parameters = CASES["msgld"]
    X, y = problem(estimator)
    with pytest.raises(ValueError, match=r"belongs to another fit: X, y or weights \(hash\) is \w+ and was \w+\. Repeat"):
        estimator(**parameters, checkpoint=path).fit(X + 1e-3 * y[:, None], y)


def test_what_does_not_decide_the_draws_may_change(path, monkeypatch):
    leave(path, monkeypatch)
    assert_same(fit("msgld", checkpoint=path, sampler=MSGLD(), hidden_layer_sizes=4, verbose=0, n_jobs=1), fit("msgld"))


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04", "half", "flipped", "array", "arrays"])
def test_a_damaged_or_foreign_file_is_refused(content, path, monkeypatch):
    leave(path, monkeypatch)
    whole = path.read_bytes()
    if content == "array":
        with path.open("wb") as file:
            np.save(file, np.ones(3))
    elif content == "arrays":
        np.savez(path, a=np.ones(3))
    else:
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        path.write_bytes({"half": whole[:middle], "flipped": flipped}.get(content, content))
    with pytest.raises(ValueError, match=r"is no checkpoint, or is damaged .*: remove the file to start anew"):
        fit("msgld", checkpoint=path)


def test_another_format_is_refused(path, monkeypatch):
    leave(path, monkeypatch)
    monkeypatch.setattr(checkpoints, "FORMAT", checkpoints.FORMAT + 1)
    with pytest.raises(ValueError, match="has format 1, and this version reads 2"):
        fit("msgld", checkpoint=path)


def test_a_file_holds_plain_numbers_and_no_row_of_the_data(path, monkeypatch):
    leave(path, monkeypatch)
    with np.load(path, allow_pickle=False) as file:
        assert {file[name].dtype.kind for name in file.files} <= set("fiub")


@pytest.mark.parametrize("change", [lambda x: 2.0 * x, lambda x: x + 1.0])
def test_a_function_among_the_hyperparameters_counts_by_what_it_does(change):
    assert digest(SGRLD(inverse_metric=change)) != digest(SGRLD(inverse_metric=lambda x: 3.0 * x))
    assert digest(SGRLD(inverse_metric=change)) == digest(SGRLD(inverse_metric=change))


# --- searches ----------------------------------------------------------------------------------------------------------------


def search(kind, checkpoint, **arguments):
    estimator, parameters = CASES["msgld"]
    grid = {"bias_factor": [0.0, 1.0]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return kind(estimator(**parameters, checkpoint=checkpoint), grid, cv=2, **arguments).fit(*problem(estimator))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_fits_of_a_search_share_a_folder(n_jobs, tmp_path, always):
    with joblib.parallel_config("threading"):
        found = search(GridSearchCV, tmp_path, n_jobs=n_jobs)
    expected = search(GridSearchCV, None)
    np.testing.assert_array_equal(found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])
    assert_same(found.best_estimator_, expected.best_estimator_)
    assert list(tmp_path.iterdir()) == []


def test_a_fit_finds_its_own_file_in_a_folder(tmp_path, monkeypatch):
    leave(tmp_path, monkeypatch)
    leave(tmp_path, monkeypatch, bias_factor=2.0)
    assert len(list(tmp_path.iterdir())) == 2
    assert_same(fit("msgld", checkpoint=tmp_path), fit("msgld"))
    assert len(list(tmp_path.iterdir())) == 1


def test_the_file_of_one_candidate_is_refused_by_another(path, monkeypatch):
    leave(path, monkeypatch)
    with pytest.raises(ValueError, match=r"belongs to another fit: .*Fits of a search need the name of a folder"):
        search(GridSearchCV, path, error_score="raise")
    with pytest.raises(ValueError, match="belongs to another fit"):  # all fits fail
        search(GridSearchCV, path)


def test_a_batched_search_refuses_a_checkpoint(path):
    with pytest.raises(ValueError, match="in a batched search, whose fits are computed as one batch: set checkpoint=None"):
        search(BatchedGridSearchCV, path)
    assert not path.exists()


# --- how often ---------------------------------------------------------------------------------------------------------------


def test_writing_takes_a_bounded_share_of_the_time(path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    keeper, writes = Keeper(path, {}), []

    def slow(*arguments):
        nonlocal now
        writes.append(now)
        now += 2.0

    monkeypatch.setattr(checkpoints, "_replace", slow)
    while now < 2000.0:
        if keeper.due():
            keeper.write(0, 1, EmptyState(), {})
        now += 1.0
    assert writes[0] == checkpoints.INTERVAL
    assert 2.0 * len(writes) <= checkpoints.SHARE * now + 2.0


class EmptyState:
    def _asdict(self):
        return {}


def test_a_short_fit_writes_once(path, monkeypatch):
    written = []
    replace = checkpoints._replace
    monkeypatch.setattr(checkpoints, "_replace", lambda *arguments: written.append(replace(*arguments)))
    fit("msgld", checkpoint=path)
    assert len(written) == 1


def test_an_estimator_without_a_checkpoint_writes_nothing(monkeypatch):
    monkeypatch.setattr(checkpoints, "_replace", None)
    monkeypatch.setattr("sklearn_sgmcmc.chains.digest", None)
    assert fit("msgld").draws_.shape[0] == BayesianMLPClassifier(**CASES["msgld"][1]).n_draws
