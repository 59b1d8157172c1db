"""Rows, targets and weights of every kind: what may be handed to an estimator, and what has to be refused."""

import datetime as dt
import itertools
import tempfile
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse
import torch

# --- values -----------------------------------------------------------------------------------------------------------------


def spread(rng, shape):
    return rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(-300, 300, shape)


def with_one(value):
    def values(rng, shape):
        x = rng.standard_normal(shape)
        x.flat[rng.integers(x.size)] = value
        return x

    return values


def with_a_constant_column(rng, shape):
    x = rng.standard_normal(shape)
    x[:, rng.integers(shape[1])] = rng.choice([0.0, -7.1, 1e-310, 1e300])
    return x


PLAIN_VALUES = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "counts": lambda rng, shape: rng.poisson(2.0, shape).astype(float),
    "bits": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
    "equal rows": lambda rng, shape: np.repeat(rng.standard_normal((1, *shape[1:])), shape[0], axis=0),
    "zeros": lambda rng, shape: np.zeros(shape),
    "offset": lambda rng, shape: 1e6 + rng.standard_normal(shape),
}
ODD_VALUES = {
    "constant column": with_a_constant_column,
    "spread": spread,
    "subnormal": lambda rng, shape: 5e-324 * rng.integers(-9, 9, shape),
    "tiny": lambda rng, shape: 1e-300 * rng.standard_normal(shape),
    "huge": lambda rng, shape: 1e300 * rng.standard_normal(shape),
    "largest": lambda rng, shape: rng.choice([-1.0, 1.0], shape) * np.finfo(float).max,
    "one huge": with_one(1e300),
    "one far": with_one(1e12),
    "beyond float32": with_one(1e39),
    "nan": with_one(np.nan),
    "inf": with_one(np.inf),
    "minus inf": with_one(-np.inf),
}
VALUES = PLAIN_VALUES | ODD_VALUES


# --- containers of a matrix ---------------------------------------------------------------------------------------------------


def as_dtype(dtype):
    def cast(x):
        if np.issubdtype(dtype, np.integer):
            low, high = np.iinfo(dtype).min // 2, np.iinfo(dtype).max // 2
            x = np.clip(np.nan_to_num(np.rint(x), nan=0.0, posinf=high, neginf=low), low, high)
        with np.errstate(all="ignore"):
            return x.astype(dtype)

    return cast


def strided(x):
    wide = np.full((2 * x.shape[0], 3 * x.shape[1]), np.nan)
    wide[::2, ::3] = x
    return wide[::2, ::3]


def read_only(x):
    x = x.copy()
    x.setflags(write=False)
    return x


def memory_map(x):
    if not x.size:
        return x
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, dtype=np.float64, shape=x.shape)
    mapped[:] = x
    return mapped


def with_explicit_zeros(x):
    some = scipy.sparse.csr_matrix(x)
    some.data[::2] = 0.0
    return some


def with_unsorted_indices(x):
    some = scipy.sparse.csr_matrix(x)
    some.indices, some.data = some.indices.copy(), some.data.copy()
    for start, end in itertools.pairwise(some.indptr):
        some.indices[start:end], some.data[start:end] = some.indices[start:end][::-1].copy(), some.data[start:end][::-1].copy()
    some.has_sorted_indices = False
    return some


def with_long_indices(x):
    some = scipy.sparse.csr_array(x)
    some.indices, some.indptr = some.indices.astype(np.int64), some.indptr.astype(np.int64)
    return some


class Foreign:
    """Some other library's array."""

    def __init__(self, x):
        self.x = x
        self.shape = x.shape

    def __len__(self):
        return len(self.x)

    def __getitem__(self, rows):
        return Foreign(self.x[rows])

    def __array__(self, dtype=None, copy=None):
        return self.x.astype(dtype or self.x.dtype)


def frame(x, **how):
    return pd.DataFrame(x, columns=[f"c{i}" for i in range(x.shape[1])], **how)


def with_missing(library):
    def make(x):
        columns = {f"c{i}": [None if (i, row) == (0, 0) else v for row, v in enumerate(c)] for i, c in enumerate(x.T.tolist())}
        return library.DataFrame(columns)

    return make


ARRAYS = {
    "float64": lambda x: x,
    "float32": as_dtype(np.float32),
    "float16": as_dtype(np.float16),
    "longdouble": as_dtype(np.longdouble),
    "big endian": as_dtype(">f8"),
    "int8": as_dtype(np.int8),
    "uint8": as_dtype(np.uint8),
    "int64": as_dtype(np.int64),
    "bool": lambda x: x > 0,
    "object": lambda x: x.astype(object),
    "strings": lambda x: x.astype(str),
    "list": lambda x: x.tolist(),
    "F order": np.asfortranarray,
    "strided": strided,
    "backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "memmap": memory_map,
    "unmasked": np.ma.asarray,
    "csr": scipy.sparse.csr_matrix,
    "csc": scipy.sparse.csc_array,
    "coo": scipy.sparse.coo_matrix,
    "lil": scipy.sparse.lil_matrix,
    "dok": scipy.sparse.dok_array,
    "bsr": scipy.sparse.bsr_matrix,
    "csr float32": lambda x: scipy.sparse.csr_array(as_dtype(np.float32)(x)),
    "csr int64": lambda x: scipy.sparse.csr_array(as_dtype(np.int64)(x)),
    "csr bool": lambda x: scipy.sparse.csr_array(x > 0),
    "csr, explicit zeros": with_explicit_zeros,
    "csr, unsorted": with_unsorted_indices,
    "csr, int64 indices": with_long_indices,
    "tuples": lambda x: tuple(map(tuple, x.tolist())),
    "list of arrays": list,
    "tensor": torch.tensor,
    "array interface": Foreign,
    "pandas": frame,
    "pandas, numbered columns": pd.DataFrame,
    "pandas, equal names": lambda x: frame(x).set_axis(["c"] * x.shape[1], axis=1),
    "pandas, two levels": lambda x: frame(x).set_axis(pd.MultiIndex.from_product([["a"], range(x.shape[1])]), axis=1),
    "pandas, shuffled index": lambda x: frame(x).sample(frac=1, random_state=0),
    "pandas float32": lambda x: frame(as_dtype(np.float32)(x)),
    "pandas object": lambda x: frame(x.astype(object)),
    "pandas mixed": lambda x: frame(x).assign(c0=x[:, 0] > 0) if x.shape[1] else frame(x),
    "pandas nullable": lambda x: frame(x).astype("Float64"),
    "pandas categorical": lambda x: frame(x).astype("category"),
    "pandas sparse": lambda x: pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(x)),
    "polars": lambda x: pl.DataFrame(x, schema=[f"c{i}" for i in range(x.shape[1])]),
}
REFUSED_ARRAYS = {
    "masked": lambda x: np.ma.array(x, mask=np.arange(x.size).reshape(x.shape) == 0),
    "complex": lambda x: x + 1j,
    "words": lambda x: np.full(x.shape, "word"),
    "None": lambda x: None,
    "object None": lambda x: np.full(x.shape, None),
    "1-d": lambda x: x[:, 0],
    "3-d": lambda x: x[:, :, None],
    "np.matrix": lambda x: x.view(np.matrix),
    "ragged": lambda x: [*x.tolist(), [1.0] * (x.shape[1] + 1)],
    "number": lambda x: 3.0,
    "no rows": lambda x: x[:0],
    "no columns": lambda x: x[:, :0],
    "sparse, no rows": lambda x: scipy.sparse.csr_matrix((0, x.shape[1])),
    "dates": lambda x: np.full(x.shape, np.datetime64("2000-01-01")),
    "durations": lambda x: np.full(x.shape, np.timedelta64(5, "s")),
    "polars dates": lambda x: pl.DataFrame({f"c{i}": [dt.date(2000, 1, 1)] * len(x) for i in range(x.shape[1])}),
    "structured": lambda x: np.zeros(x.shape, dtype=[("a", float), ("b", int)]),
    "pandas missing": with_missing(pd),
    "pandas NA": lambda x: frame(x).astype("Float64").mask(np.arange(x.size).reshape(x.shape) == 0),
    "pandas words": lambda x: frame(x).assign(c0="word").astype({"c0": "category"}),
    "pandas dates": lambda x: frame(x).assign(c0=pd.Timestamp("2000-01-01")),
    "polars missing": with_missing(pl),
    "polars words": lambda x: pl.DataFrame({f"c{i}": ["word"] * len(x) for i in range(x.shape[1])}),
    "csr nan": lambda x: scipy.sparse.csr_matrix(np.where(np.arange(x.size).reshape(x.shape) == 0, np.nan, x)),
}
CONTAINERS = ARRAYS | REFUSED_ARRAYS


def dense(container):
    """Return what a container holds, as float64."""
    if scipy.sparse.issparse(container):
        container = container.toarray()
    elif hasattr(container, "to_numpy"):
        container = container.to_numpy()
    return np.asarray(container, dtype=np.float64)


# --- targets ------------------------------------------------------------------------------------------------------------------


def labels(*of_class):
    return lambda rng, n: np.array(of_class)[rng.integers(len(of_class), size=n)]


CLASSES = {
    "int": labels(0, 1),
    "three": labels(0, 1, 2),
    "signed": labels(-3, 5),
    "int64 ends": labels(np.iinfo(np.int64).min, np.iinfo(np.int64).max),
    "uint8": lambda rng, n: rng.integers(0, 3, n).astype(np.uint8),
    "bool": labels(False, True),
    "float": labels(-1.0, 2.0),
    "float32": lambda rng, n: rng.integers(0, 3, n).astype(np.float32),
    "str": labels("no", "yes", "", "a longer label"),
    "object": lambda rng, n: labels("no", "yes")(rng, n).astype(object),
    "one": lambda rng, n: np.full(n, "only"),
    "all": lambda rng, n: np.arange(n),
    "list": lambda rng, n: labels("a", "b")(rng, n).tolist(),
    "series": lambda rng, n: pd.Series(labels("a", "b")(rng, n)),
    "categorical": lambda rng, n: pd.Series(labels("a", "b")(rng, n), dtype="category"),
    "nullable": lambda rng, n: pd.Series(labels(0, 1)(rng, n), dtype="Int64"),
    "polars": lambda rng, n: pl.Series(labels("a", "b")(rng, n)),
    "column": lambda rng, n: labels(0, 1)(rng, n)[:, None],
}
NO_CLASSES = {
    "continuous": lambda rng, n: rng.standard_normal(n),
    "nan": lambda rng, n: np.full(n, np.nan),
    "inf": lambda rng, n: np.full(n, np.inf),
    "None": lambda rng, n: None,
    "Nones": lambda rng, n: np.full(n, None),
    "two columns": lambda rng, n: rng.integers(0, 2, (n, 2)),
    "short": lambda rng, n: labels(0, 1)(rng, n - 1),
    "mixed": lambda rng, n: np.array([1, *["b"] * n], dtype=object)[:n] if n > 1 else None,
    "sparse": lambda rng, n: scipy.sparse.csr_matrix(rng.integers(0, 2, (n, 1))),
    "masked": lambda rng, n: np.ma.array(np.zeros(n, int), mask=np.arange(n) == 0),
}


def one_column(make, rng, n):
    return make(rng, (n, 1))[:, 0]


NUMBERS = {
    "float64": lambda rng, n: rng.standard_normal(n),
    "float32": lambda rng, n: rng.standard_normal(n).astype(np.float32),
    "float16": lambda rng, n: rng.standard_normal(n).astype(np.float16),
    "int": lambda rng, n: rng.integers(-5, 5, n),
    "bool": lambda rng, n: rng.integers(0, 2, n) > 0,
    "object": lambda rng, n: rng.standard_normal(n).astype(object),
    "strings": lambda rng, n: rng.standard_normal(n).astype(str),
    "constant": lambda rng, n: np.full(n, 3.3),
    "column": lambda rng, n: rng.standard_normal((n, 1)),
    "two": lambda rng, n: rng.standard_normal((n, 2)),
    "seven": lambda rng, n: np.asfortranarray(rng.standard_normal((n, 7))),
    "one constant": lambda rng, n: np.stack([np.zeros(n), rng.standard_normal(n)], axis=1),
    "list": lambda rng, n: rng.standard_normal(n).tolist(),
    "integers beyond int64": lambda rng, n: [10**30 + i for i in range(n)],
    "series": lambda rng, n: pd.Series(rng.standard_normal(n)),
    "frame": lambda rng, n: pd.DataFrame(rng.standard_normal((n, 2))),
    "polars": lambda rng, n: pl.Series(rng.standard_normal(n)),
    "big endian": lambda rng, n: rng.standard_normal(n).astype(">f8"),
    "offset": lambda rng, n: 1e9 + rng.standard_normal(n),
}
ODD_NUMBERS = {name: partial(one_column, make) for name, make in ODD_VALUES.items()}
NO_NUMBERS = {
    "words": lambda rng, n: np.full(n, "word"),
    "None": lambda rng, n: None,
    "Nones": lambda rng, n: np.full(n, None),
    "short": lambda rng, n: rng.standard_normal(n - 1),
    "complex": lambda rng, n: rng.standard_normal(n) + 1j,
    "no columns": lambda rng, n: np.empty((n, 0)),
    "3-d": lambda rng, n: rng.standard_normal((n, 1, 1)),
    "dates": lambda rng, n: np.full(n, np.datetime64("2000-01-01")),
    "sparse": lambda rng, n: scipy.sparse.csr_matrix(rng.standard_normal((n, 1))),
    "masked": lambda rng, n: np.ma.array(np.zeros(n), mask=np.arange(n) == 0),
    "NA": lambda rng, n: pd.Series([pd.NA] * n, dtype="Float64"),
}


# --- weights ------------------------------------------------------------------------------------------------------------------

WEIGHTS = {
    "none": lambda rng, n: None,
    "ones": lambda rng, n: np.ones(n),
    "number": lambda rng, n: 2.0,
    "counts": lambda rng, n: 1 + rng.poisson(1.0, n),
    "some zero": lambda rng, n: np.where(np.arange(n) == n // 2, 1.5, rng.integers(0, 2, n)),
    "one row": lambda rng, n: (np.arange(n) == n - 1).astype(float),
    "series": lambda rng, n: pd.Series(rng.uniform(0.5, 2, n)),
    "float32": lambda rng, n: rng.uniform(0.5, 2, n).astype(np.float32),
}
ODD_WEIGHTS = {
    "small": lambda rng, n: np.full(n, 1e-14),
    "large": lambda rng, n: np.full(n, 1e14),
    "far apart": lambda rng, n: 10.0 ** rng.uniform(-14, 14, n),
    "strings": lambda rng, n: np.full(n, "1.5"),
}
NO_WEIGHTS = {
    "tiny": lambda rng, n: np.full(n, 1e-300),
    "subnormal": lambda rng, n: np.full(n, 5e-324),
    "huge": lambda rng, n: np.full(n, 1e300),
    "negative": lambda rng, n: np.where(np.arange(n) == 0, -1.0, 1.0),
    "nan": lambda rng, n: np.where(np.arange(n) == 0, np.nan, 1.0),
    "inf": lambda rng, n: np.where(np.arange(n) == 0, np.inf, 1.0),
    "zero": lambda rng, n: np.zeros(n),
    "short": lambda rng, n: np.ones(n + 1),
    "square": lambda rng, n: np.ones((n, 2)),
    "words": lambda rng, n: np.full(n, "heavy"),
    "Nones": lambda rng, n: np.full(n, None),
    "complex": lambda rng, n: np.full(n, 1j),
    "masked": lambda rng, n: np.ma.array(np.ones(n), mask=np.arange(n) == 0),
}
