"""Facts about the data sets shipped with the package."""

import sys

import numpy as np
import pytest

from sklearn_sgmcmc.datasets import load_landsat


@pytest.fixture(scope="module")
def landsat():
    return load_landsat()


def class_counts(target):
    labels, counts = np.unique(target, return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))


def test_landsat_data_is_float64_of_shape_6435_36(landsat):
    assert (landsat.data.dtype, landsat.data.shape) == (np.float64, (6435, 36))


def test_landsat_target_is_int64_of_shape_6435(landsat):
    assert (landsat.target.dtype, landsat.target.shape) == (np.int64, (6435,))


def test_landsat_train_indices_are_the_first_4435_rows(landsat):
    assert np.array_equal(landsat.train_indices, np.arange(4435))


def test_landsat_test_indices_are_the_last_2000_rows(landsat):
    assert np.array_equal(landsat.test_indices, np.arange(4435, 6435))


def test_landsat_training_set_has_the_published_class_counts(landsat):
    expected = {1: 1072, 2: 479, 3: 961, 4: 415, 5: 470, 7: 1038}
    assert class_counts(landsat.target[landsat.train_indices]) == expected


def test_landsat_test_set_has_the_published_class_counts(landsat):
    expected = {1: 461, 2: 224, 3: 397, 4: 211, 5: 237, 7: 470}
    assert class_counts(landsat.target[landsat.test_indices]) == expected


def test_landsat_values_range_from_27_to_157(landsat):
    assert (landsat.data.min(), landsat.data.max()) == (27, 157)


def test_landsat_values_are_whole_numbers(landsat):
    assert np.array_equal(landsat.data, np.round(landsat.data))


def test_landsat_first_training_patch_starts_with_its_published_pixel(landsat):
    assert landsat.data[0, :4].tolist() == [92, 115, 120, 94]


def test_landsat_first_test_patch_starts_with_its_published_pixel(landsat):
    assert landsat.data[4435, :4].tolist() == [80, 102, 102, 79]


def test_landsat_no_test_row_occurs_in_the_training_set(landsat):
    train_rows = set(map(tuple, landsat.data[landsat.train_indices].tolist()))
    test_rows = set(map(tuple, landsat.data[landsat.test_indices].tolist()))
    assert train_rows.isdisjoint(test_rows)


def test_landsat_cotton_reflects_more_infrared_than_red(landsat):
    red, infrared = (landsat.feature_names.index(f"band{b}_px5") for b in (2, 4))
    cotton = landsat.data[landsat.target == 2].mean(axis=0)
    assert cotton[infrared] > 2 * cotton[red]


def test_landsat_feature_names_list_the_bands_pixel_by_pixel(landsat):
    expected = ["band1_px1", "band2_px1", "band3_px1", "band4_px1", "band1_px2"]
    assert landsat.feature_names[:5] == expected


def test_landsat_feature_names_are_36_distinct_names(landsat):
    assert len(set(landsat.feature_names)) == len(landsat.feature_names) == 36


def test_landsat_target_names_follow_the_order_of_the_labels(landsat):
    names = dict(zip(np.unique(landsat.target), landsat.target_names, strict=True))
    assert names == {
        1: "red soil",
        2: "cotton crop",
        3: "grey soil",
        4: "damp grey soil",
        5: "soil with vegetation stubble",
        7: "very damp grey soil",
    }


def test_landsat_description_names_the_licence(landsat):
    assert "CC BY 4.0" in landsat.DESCR


def test_landsat_description_names_the_donor(landsat):
    assert "Ashwin Srinivasan" in landsat.DESCR


def test_landsat_frame_is_none_without_as_frame(landsat):
    assert landsat.frame is None


def test_landsat_return_X_y_gives_the_data_of_the_bunch(landsat):
    X, _ = load_landsat(return_X_y=True)
    assert np.array_equal(X, landsat.data)


def test_landsat_return_X_y_gives_the_target_of_the_bunch(landsat):
    _, y = load_landsat(return_X_y=True)
    assert np.array_equal(y, landsat.target)


def test_landsat_loads_a_fresh_copy_every_time(landsat):
    assert not np.shares_memory(load_landsat().data, landsat.data)


def test_landsat_as_frame_adds_a_target_column_to_the_features(landsat):
    pytest.importorskip("pandas")
    frame = load_landsat(as_frame=True).frame
    assert frame.columns.tolist() == [*landsat.feature_names, "target"]


def test_landsat_as_frame_keeps_the_values(landsat):
    pytest.importorskip("pandas")
    X, y = load_landsat(return_X_y=True, as_frame=True)
    expected = np.column_stack([landsat.data, landsat.target])
    assert np.array_equal(np.column_stack([X, y]), expected)


def test_landsat_as_frame_returns_a_data_frame_and_a_series():
    pd = pytest.importorskip("pandas")
    X, y = load_landsat(return_X_y=True, as_frame=True)
    assert (type(X), type(y)) == (pd.DataFrame, pd.Series)


def test_landsat_as_frame_without_pandas_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        load_landsat(as_frame=True)


@pytest.mark.parametrize("name", ["return_X_y", "as_frame"])
def test_landsat_rejects_a_flag_that_is_not_a_bool(name):
    with pytest.raises(ValueError, match=f"{name}='yes' must be True or False"):
        load_landsat(**{name: "yes"})
