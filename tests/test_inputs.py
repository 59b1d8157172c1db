"""What people feed to estimators."""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import DataConversionWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sklearn_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor

FAST = {"hidden_layer_sizes": (6,), "max_iter": 40, "n_draws": 5, "random_state": 0}
RNG = np.random.RandomState(0)
X = RNG.randn(60, 3)
Y = X[:, 0] - X[:, 1] ** 2
both = pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])


def target(estimator):
    return (Y > 0).astype(int) if estimator is BayesianMLPClassifier else Y


@both
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_feed_us_with_feature_names(estimator, library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({name: X[:, i] for i, name in enumerate("abc")})
    model = estimator(**FAST).fit(frame, target(estimator))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model.draws_, estimator(**FAST).fit(X, target(estimator)).draws_)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])


@both
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_an_upstream_set_output_feeds_us(estimator, library):
    pytest.importorskip(library)
    pipe = make_pipeline(StandardScaler().set_output(transform=library), estimator(**FAST)).fit(X, target(estimator))
    assert pipe[-1].feature_names_in_.tolist() == ["x0", "x1", "x2"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # scikit-learn's, of missing or superfluous feature names
        pipe.predict(X)


@both
def test_pandas_series_targets_and_weights(estimator):
    pandas = pytest.importorskip("pandas")
    y = target(estimator)
    model = estimator(**FAST).fit(
        pandas.DataFrame(X).rename(columns=str), pandas.Series(y), sample_weight=pandas.Series(np.ones(60))
    )
    np.testing.assert_array_equal(model.draws_, estimator(**FAST).fit(X, y).draws_)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array([False, True]),
        np.array([-1, 1]),
        np.array([2.0, 5.0]),
        np.array(["no", "yes"], dtype=object),
    ],
    ids=["str", "bool", "signed", "float", "object"],
)
def test_labels_come_back_as_they_went_in(labels):
    y = labels[(Y > 0).astype(int)]
    model = BayesianMLPClassifier(**FAST).fit(X, y)
    assert model.predict(X).dtype == y.dtype
    assert set(model.predict(X)) <= set(labels)
    np.testing.assert_array_equal(model.draws_, BayesianMLPClassifier(**FAST).fit(X, (Y > 0).astype(int)).draws_)


def test_one_class_only():
    model = BayesianMLPClassifier(**FAST).fit(X, np.full(60, "only"))
    np.testing.assert_array_equal(model.predict_proba(X), np.ones((60, 1)))
    assert set(model.predict(X)) == {"only"}
    assert np.isfinite(model.predict_log_proba(X)).all()
    np.testing.assert_array_equal(model.predict_uncertainty(X).total, 0)


def test_column_labels_warn_as_scikit_learn_does():
    with pytest.warns(DataConversionWarning):
        model = BayesianMLPClassifier(**FAST).fit(X, (Y > 0)[:, None])
    assert model.predict(X).shape == (60,)


def test_column_targets_of_a_regressor_keep_their_shape():
    model = BayesianMLPRegressor(**FAST).fit(X, Y[:, None])
    assert model.predict(X).shape == (60, 1)


def test_continuous_targets_for_a_classifier_are_refused():
    with pytest.raises(ValueError, match="continuous"):
        BayesianMLPClassifier(**FAST).fit(X, Y)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8, np.float16])
def test_numeric_dtypes(estimator, dtype):
    Z = (10 * X + 40).astype(dtype)
    model = estimator(**FAST).fit(Z, target(estimator))
    expected = np.float32 if dtype == np.float32 else np.float64
    assert model.predict_proba(Z).dtype == expected if estimator is BayesianMLPClassifier else model.predict(Z).dtype == expected


@both
@pytest.mark.parametrize("layout", ["F", "strided", "readonly"])
def test_memory_layouts_give_the_same_model(estimator, layout):
    Z = {"F": np.asfortranarray(X), "strided": np.repeat(X, 2, axis=0)[::2], "readonly": X.copy()}[layout]
    Z.setflags(write=layout != "readonly")
    y = target(estimator)
    np.testing.assert_array_equal(estimator(**FAST).fit(Z, y).draws_, estimator(**FAST).fit(X, y).draws_)


@both
def test_sparse_inputs_predict_as_dense_ones(estimator):
    Z = X * (np.abs(X) > 0.5)
    model = estimator(**FAST).fit(scipy.sparse.csr_array(Z), target(estimator))
    np.testing.assert_array_equal(model.predict(Z), model.predict(scipy.sparse.csr_array(Z)))


@both
@pytest.mark.parametrize(("n_rows", "n_columns"), [(1, 3), (2, 3), (5, 1), (20, 300)])
def test_tiny_and_wide_data(estimator, n_rows, n_columns):
    Z = RNG.randn(n_rows, n_columns)
    model = estimator(**FAST).fit(Z, np.arange(n_rows) % 2)
    assert np.isfinite(model.predict(Z)).all()


@both
def test_unit_weights_change_nothing(estimator):
    y = target(estimator)
    for weight in (np.ones(60), 1, [1.0] * 60):
        np.testing.assert_array_equal(estimator(**FAST).fit(X, y, weight).draws_, estimator(**FAST).fit(X, y).draws_)


def test_class_weight_acts_as_sample_weight():
    y = (Y > 0).astype(int)
    one = BayesianMLPClassifier(class_weight={0: 1, 1: 3}, **FAST).fit(X, y)
    two = BayesianMLPClassifier(**FAST).fit(X, y, sample_weight=np.where(y == 1, 3.0, 1.0))
    np.testing.assert_array_equal(one.draws_, two.draws_)


def test_balanced_class_weight_gives_classes_equal_totals():
    y = (Y > 0.8).astype(int)
    n = np.bincount(y)
    one = BayesianMLPClassifier(class_weight="balanced", **FAST).fit(X, y)
    two = BayesianMLPClassifier(**FAST).fit(X, y, sample_weight=(60 / (2 * n))[y])
    np.testing.assert_array_equal(one.draws_, two.draws_)


@both
def test_clone_of_a_fitted_estimator_is_unfitted_and_equal(estimator):
    model = estimator(**FAST).fit(X, target(estimator))
    copy = clone(model)
    assert not hasattr(copy, "draws_")
    np.testing.assert_array_equal(copy.fit(X, target(estimator)).draws_, model.draws_)


def test_a_column_transformer_in_front():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"colour": np.array(["red", "green"])[(X[:, 2] > 0).astype(int)], "size": X[:, 0]})
    transform = make_column_transformer((OneHotEncoder(), ["colour"]), remainder="passthrough")
    pipe = make_pipeline(transform, BayesianMLPClassifier(**FAST)).fit(frame, Y > 0)
    assert pipe.predict_proba(frame).shape == (60, 2)


@both
def test_rows_beyond_the_copy_limit_give_the_same_model(estimator, monkeypatch):
    from sklearn_sgmcmc.estimators import _rows

    y = target(estimator)
    before = estimator(batch_size=16, **FAST).fit(X, y).draws_
    monkeypatch.setattr(_rows, "COPY_BYTES", 0)
    np.testing.assert_array_equal(estimator(batch_size=16, **FAST).fit(X, y).draws_, before)


@both
@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_masked_entries_are_refused(estimator, name):
    data = {"X": X, "y": target(estimator), "sample_weight": np.ones(60)}
    estimator(**FAST).fit(**data | {name: np.ma.asarray(data[name])})
    data[name] = np.ma.array(data[name], mask=np.arange(data[name].size).reshape(data[name].shape) == 7)
    with pytest.raises(ValueError, match=f"{name} has 1 masked entries"):
        estimator(**FAST).fit(**data)


def test_masked_rows_are_not_predicted():
    with pytest.raises(ValueError, match="X has 1 masked"):
        BayesianMLPRegressor(**FAST).fit(X, Y).predict(np.ma.array(X[:1], mask=[[True, False, False]]))


@pytest.mark.parametrize(
    ("y", "message"), [("word", "could not convert"), ("nan", "NaN or infinity"), ("1e999", "NaN or infinity")]
)
def test_text_that_is_no_number_is_no_target(y, message):
    with pytest.raises(ValueError, match=f"y of dtype <U.*{message}"):
        BayesianMLPRegressor(**FAST).fit(X, np.full(60, y))


@both
def test_the_largest_numbers_of_both_signs_pass_without_a_warning(estimator):
    extreme = np.finfo(float).max * np.where(np.arange(60) % 2, 1, -1)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        estimator(**FAST).fit(extreme, target(estimator)).predict(extreme)


@pytest.mark.parametrize("method", ["predict", "predict_uncertainty", "predict_interval", "sample_posterior", "sample_y"])
def test_predictions_beyond_float64_are_an_error_without_a_warning(method):
    y = np.finfo(float).max * np.where(np.arange(60) % 2, 1, -1)
    model = BayesianMLPRegressor(**FAST).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ValueError, match="overflow float64"):
            getattr(model, method)(1e3 * X)


@both
@pytest.mark.parametrize("library", ["numpy", "pandas", "polars"])
def test_dates_are_no_numbers(estimator, library):
    dates = np.repeat(np.arange("2000-01-01", "2000-03-01", dtype="datetime64[D]")[:, None], 2, axis=1)
    rows = dates.astype("datetime64[ms]") if library != "numpy" else dates
    rows = rows if library == "numpy" else pytest.importorskip(library).DataFrame({"a": rows[:, 0], "b": rows[:, 1]})
    with pytest.raises(ValueError, match=r"X has the dtype (datetime64|Datetime).*a date is no number"):
        estimator(**FAST).fit(rows, target(estimator))


def test_dates_are_no_targets():
    with pytest.raises(ValueError, match="y has the dtype datetime64"):
        BayesianMLPRegressor(**FAST).fit(X, np.full(60, np.datetime64("2000-01-01")))


def test_dates_have_no_density():
    with pytest.raises(ValueError, match="y has the dtype datetime64"):
        BayesianMLPRegressor(**FAST).fit(X, Y).log_predictive_density(X, np.full(60, np.datetime64("2000-01-01")))


@pytest.mark.parametrize("missing", [None, np.nan, pytest.param("pandas.NA", id="NA"), 5])
def test_missing_and_mixed_labels_are_refused(missing):
    missing = pytest.importorskip("pandas").NA if missing == "pandas.NA" else missing
    labels = np.array(["a", "b"] * 30, dtype=object)
    labels[7] = missing
    for call in (BayesianMLPClassifier(**FAST).fit, partial(BayesianMLPClassifier(**FAST).partial_fit, classes=["a", "b"])):
        with pytest.raises(
            ValueError, match=rf"y has entries of the types .*{type(missing).__name__}.*: drop rows without a label"
        ):
            call(X, labels)


def test_weights_that_are_not_numbers_are_refused_even_unchecked():
    with config_context(assume_finite=True), pytest.raises(ValueError, match="sample_weight has the value nan"):
        BayesianMLPRegressor(**FAST).fit(X, Y, sample_weight=np.full(60, np.nan))


def test_variances_that_underflow_are_an_error():
    model = BayesianMLPRegressor(**FAST).fit(X, 1e-200 * Y)
    assert (model.predict(X, return_std=True)[1] > 0).all()
    with pytest.raises(ValueError, match=r"y has the standard deviation .*underflows float64"):
        model.predict_uncertainty(X)
