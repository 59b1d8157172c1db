"""A hash of whatever an object is made of: what tells one fit from another."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from numbers import Integral
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch

PIECE = 2**22
"""Bytes of an array that are hashed at a time."""


def digest(value: Any) -> str:
    """Return a hash of all that a value is made of: equal for equal content, in another process as well."""
    total = hashlib.sha256()
    for piece in _pieces(value):
        total.update(piece)
    return total.hexdigest()


def _pieces(value: Any) -> Iterator[bytes | memoryview]:
    """Yield the content of a value, whatever it is, as bytes."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        yield f"array {value.dtype.str} {value.shape}".encode()
        rows = np.atleast_1d(value)
        n_rows = max(1, PIECE // max(1, rows[:1].nbytes))
        for start in range(0, len(rows), n_rows):  # another order than C's costs the copy of a piece
            yield np.ascontiguousarray(rows[start : start + n_rows]).reshape(-1).view(np.uint8).data
    elif value is None or isinstance(value, bool | np.bool_ | str | bytes | torch.device | torch.dtype):
        yield f"{type(value).__name__} {value!r};".encode()
    elif isinstance(value, Integral):
        yield f"int {int(value)};".encode()
    elif isinstance(value, float):
        yield f"float {float(value).hex()};".encode()
    elif isinstance(value, FunctionType | CodeType | type | partial):
        yield f"{type(value).__name__} {getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}".encode()
        yield from _pieces(_of_code(value))
    elif isinstance(value, Mapping):
        yield from _pieces(list(value.items()))
    elif isinstance(value, tuple | list | frozenset | set):
        items = sorted(value, key=repr) if isinstance(value, frozenset | set) else value
        yield f"{len(items)} items ".encode()
        for item in items:
            yield from _pieces(item)
    else:
        yield f"{type(value).__module__}.{type(value).__qualname__} ".encode()
        yield from _pieces(_contents(value))


def _of_code(value: Any) -> Any:
    """Return what a function does, as far as it can be seen."""
    if isinstance(value, FunctionType):
        return value.__code__, value.__defaults__, [cell.cell_contents for cell in value.__closure__ or ()]
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, value.co_consts
    return (value.func, value.args, value.keywords) if isinstance(value, partial) else None


def _contents(value: Any) -> Any:
    """Return the fields of an object; its text where it has none."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "indptr"):  # a sparse matrix, whose other attributes are caches
        return value.shape, value.data, value.indices, value.indptr
    return vars(value) if hasattr(value, "__dict__") else repr(value)
