"""Normal numbers: their law, from kernel and torch alike, and that blocks, calls and chains are independent and reproducible."""

import numpy as np
import pytest
import scipy.stats
import torch

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc.noise import BlockNoise, noise_generators

CPU = torch.device("cpu")
N_CHAINS, P, N_CALLS = 8, 16_385, 4  # two blocks; a call's numbers are no multiple of a vector's


@pytest.fixture(params=["compiled", "torch"])
def source(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(kernels, "normals", lambda: None)
    elif kernels.normals() is None:
        pytest.skip("the machine has no C compiler")
    return request.param


def make(n_blocks=2, seed=5):
    return BlockNoise(noise_generators((seed,), range(n_blocks), CPU))


@pytest.fixture
def numbers(source, dtype):
    """Return (calls, chains, P) numbers in float64."""
    noise, like = make(), torch.empty(N_CHAINS, P, dtype=dtype)
    return torch.stack([noise(like) for _ in range(N_CALLS)]).double().numpy()


both = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@both
def test_moments_are_the_normals(numbers):
    n = numbers.size
    for power, mean, square in ((1, 0, 1), (2, 1, 3), (3, 0, 15), (4, 3, 105), (6, 15, 10395)):
        z = ((numbers**power).mean() - mean) / np.sqrt((square - mean**2) / n)
        assert abs(z) < 5  # p = 6e-7


@both
def test_distribution_is_the_normal(numbers):
    assert scipy.stats.kstest(numbers.ravel(), "norm").pvalue > 1e-6


@both
def test_tails_are_as_heavy_as_the_normals(numbers):
    for bound in (2.0, 3.0, 4.0, 4.5):
        expected = 2 * scipy.stats.norm.sf(bound) * numbers.size
        count = int((abs(numbers) > bound).sum())
        assert scipy.stats.poisson.cdf(count, expected) > 1e-6
        assert scipy.stats.poisson.sf(count - 1, expected) > 1e-6


@both
def test_numbers_are_independent_within_a_call_and_across_calls_chains_and_blocks(numbers):
    def correlation(a, b):
        return (a * b).mean() * np.sqrt(a.size)

    for power in (1, 2):  # pairs of a Box-Muller transform share their radius: squares would tell
        z = (numbers**power - (power == 2)) / np.sqrt(1 if power == 1 else 2)
        lags = [correlation(z[..., :-lag], z[..., lag:]) for lag in (1, 2, 7, 8, 15, 16, 32, 64)]
        calls = [correlation(z[call], z[call + 1]) for call in range(N_CALLS - 1)]
        chains = [correlation(z[:, i], z[:, j]) for i in range(N_CHAINS) for j in range(i)]
        assert np.abs([*lags, *calls, *chains]).max() < 5.5  # p = 3e-6 for 78 of them


@both
def test_far_tails_of_the_compiled_numbers_are_in_place(dtype):
    """The radius at the least random words, and that the largest is no less than 7.4 (float32) or 8.4 standard deviations."""
    words = np.zeros((2, 8), dtype=np.uint64)
    words[1] = 2**51 if dtype == torch.float64 else 0  # no angle; all low bits 0
    if dtype == torch.float64:
        words[0] = 2**52 - 1
    radius = kernels._normals.box_muller(words, dtype)[0]
    assert radius == pytest.approx(np.sqrt(2 * np.log(2) * (40 if dtype == torch.float32 else 52)), rel=1e-12)


def test_a_state_can_be_kept_and_restored(source):
    noise, like = make(), torch.empty(8, 33)
    noise(like)
    states = [generator.get_state() for generator in noise.generators]
    expected = [noise(like) for _ in range(3)]
    other = make(seed=6)
    for generator, state in zip(other.generators, states, strict=True):
        generator.set_state(state)
    assert all(torch.equal(other(like), numbers) for numbers in expected)


def test_a_state_of_another_kind_is_refused():
    generator = kernels.NormalGenerator(np.ones(kernels.WORDS, dtype=np.uint64))
    with pytest.raises(ValueError, match="SKLEARN_SGMCMC_COMPILE alike"):
        generator.set_state(torch.Generator().get_state())


def test_a_block_does_not_depend_on_its_company(source):
    together, alone = make(3)(torch.empty(12, 37)), BlockNoise(noise_generators((5,), [1], CPU))(torch.empty(4, 37))
    assert torch.equal(together[4:8], alone)


def test_strides_of_the_example_do_not_matter(source):
    like = torch.empty(37, 8).T
    assert torch.equal(make()(like), make()(torch.empty(8, 37)))


def test_chains_that_are_no_whole_blocks_are_refused(source):
    with pytest.raises(ValueError, match="12 chains are not 2 blocks"):
        make()(torch.empty(12, 3))
