"""One torch thread while we compute: at these shapes more threads gain nothing and fight other processes for the cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _Visits:
    """How many calls are computing now, and the thread count to go back to when the last of them leaves."""

    lock = threading.Lock()
    count = 0
    before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread for a while, whatever happens inside; safe when several Python threads are inside at once."""
    with _Visits.lock:
        if _Visits.count == 0:
            _Visits.before = torch.get_num_threads()
        _Visits.count += 1
    try:
        torch.set_num_threads(1)
        yield
    finally:
        with _Visits.lock:
            _Visits.count -= 1
            if _Visits.count == 0:
                torch.set_num_threads(_Visits.before)
