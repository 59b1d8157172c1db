"""Minibatches: streams of rows."""

import numpy as np
import pytest
import scipy.sparse
import torch

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc.batches import Batches, DenseRows, LazyRows, RowSet, Scaling
from sklearn_sgmcmc.noise import row_generators

CPU = torch.device("cpu")


def numbered(n_rows):
    """Return rows whose target is their number."""
    return DenseRows(torch.zeros(n_rows, 1), torch.arange(n_rows, dtype=torch.float32)[:, None], torch.ones(n_rows))


def stream(batches, n_steps):
    return torch.cat([next(batches).target[..., 0] for _ in range(n_steps)], dim=1).int()


def make(row_sets, batch_size, **kwargs):
    source = numbered(max(rows.start + rows.size for rows in row_sets))
    return Batches(source, row_sets, batch_size, row_generators((7,), range(len(row_sets)), CPU), **kwargs)


@pytest.mark.parametrize(("n_rows", "batch_size"), [(10, 3), (10, 5), (7, 7 - 1), (100, 64)])
def test_each_pass_visits_every_row_once(n_rows, batch_size):
    seen = stream(make([RowSet(0, n_rows)] * 2, batch_size), 40 * n_rows)
    for chain in seen:
        for start in range(0, 10 * n_rows, n_rows):
            assert sorted(chain[start : start + n_rows].tolist()) == list(range(n_rows))


def test_chains_see_different_orders():
    seen = stream(make([RowSet(0, 50)] * 3, 10), 5)
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_a_chains_stream_does_not_depend_on_its_company():
    together, alone = make([RowSet(0, 20), RowSet(20, 30)], 6), make([RowSet(0, 20)], 6)
    torch.testing.assert_close(stream(together, 60)[0], stream(alone, 60)[0])


def test_row_sets_keep_to_their_rows():
    seen = stream(make([RowSet(0, 20), RowSet(20, 30)], 6), 100)
    assert seen[0].max() < 20
    assert seen[1].min() >= 20


def test_independent_rows_repeat_as_often_as_chance_has_it():
    seen = stream(make([RowSet(0, 10)], 5, independent=True), 4000)[0]
    counts = np.bincount(seen.numpy(), minlength=10)
    chi2 = ((counts - 2000) ** 2 / 2000).sum()
    assert chi2 < 43.1  # p = 2e-6 at 9 degrees of freedom
    same_batch_repeats = (seen[0::5] == seen[1::5]).float().mean()
    assert abs(same_batch_repeats - 0.1) < 5 * (0.09 / 4000) ** 0.5


def test_full_batch_keeps_the_order_of_rows_and_draws_no_number():
    batches = make([RowSet(0, 9)] * 2, 9)
    state = batches.generators[0].get_state()
    assert stream(batches, 2)[1].tolist() == [*range(9), *range(9)]
    assert torch.equal(state, batches.generators[0].get_state())


def test_sparse_and_dense_rows_give_the_same_numbers(monkeypatch):
    rng = np.random.RandomState(0)
    x = rng.randn(40, 6) * (rng.rand(40, 6) < 0.3)
    scaling = Scaling(x.mean(axis=0), x.std(axis=0))
    target, weight = torch.randn(40, 2), torch.rand(40)
    dense = DenseRows(torch.from_numpy(scaling.apply(x, np.float32)), target, weight)
    where = torch.float32, torch.device("cpu")
    sparse = LazyRows(scipy.sparse.csr_array(x), scaling, target, weight, *where)
    fixed = np.asfortranarray(x)
    fixed.flags.writeable = False
    large = LazyRows(fixed, scaling, target, weight, *where)
    index = torch.randint(40, (3, 8), dtype=torch.int32)
    for compiled in (kernels.scaled_rows(), None):
        monkeypatch.setattr(kernels, "scaled_rows", lambda compiled=compiled: compiled)
        for lazy in (sparse, large):
            for left, right in zip(dense.take(index), lazy.take(index), strict=True):
                assert torch.equal(left, right)


def test_rows_taken_ahead_come_in_their_order_and_a_stream_goes_on_from_where_it_was():
    x, ones = np.random.RandomState(0).randn(40, 6), torch.ones(40)
    where = torch.float64, torch.device("cpu")
    sources = (
        DenseRows(torch.from_numpy(x), ones[:, None], ones.double()),
        LazyRows(x, Scaling(np.zeros(6), np.ones(6)), ones[:, None], ones, *where),
    )
    dense, lazy = (
        Batches(source, [RowSet(0, 40)] * 2, 8, [torch.Generator().manual_seed(k) for k in (0, 1)]) for source in sources
    )
    for _ in range(70):  # beyond the first queue
        assert torch.equal(next(dense).x, next(lazy).x)
    state = lazy.state()
    expected = [next(lazy).x for _ in range(70)]
    lazy.restore(state)
    assert all(torch.equal(next(lazy).x, rows) for rows in expected)
