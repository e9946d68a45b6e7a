"""Exact coins, and integer Laplace noise made finer: the laws, ties, and what is refused. Seeds are fixed."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from deltahist.errors import InputError
from deltahist.noise import discrete_laplace
from deltahist.noise.coins import coins, finer_laplace
from deltahist.noise.entropy import source

#: One false alarm in a million for each of the goodness-of-fit tests.
ALARM = 1e-6
NUMBER = 200_000


class Given:
    """Words that are known beforehand."""

    def __init__(self, *words):
        self.left = list(words)

    def words(self, number):
        out, self.left = self.left[:number], self.left[number:]
        return np.array(out, dtype=np.uint64)


def test_coins_have_their_chances():
    chances = (Fraction(1, 3), Fraction(1), Fraction(0), Fraction(1, 1000))
    which = np.repeat(np.arange(4, dtype=np.uint8), NUMBER)
    shown = coins(chances, which, source(np.random.default_rng(1))).reshape(4, -1).sum(axis=1)
    assert shown[1:3].tolist() == [NUMBER, 0]
    for chance, found in ((chances[0], shown[0]), (chances[3], shown[3])):
        assert scipy.stats.binomtest(int(found), NUMBER, float(chance)).pvalue > ALARM


def test_a_word_that_equals_the_chance_s_first_bits_is_decided_by_more():
    third = (1 << 64) // 3
    for more, shown in ((0, True), (third, None), ((1 << 64) - 1, False)):
        words = Given(third, more, 0)
        found = coins([Fraction(1, 3)], np.zeros(1, dtype=np.uint8), words)
        assert found[0] == (True if shown is None else shown)
        assert len(words.left) == (0 if shown is None else 1)  # a third's bits repeat: another tie


@pytest.mark.parametrize("word", [0, (1 << 64) - 1])
def test_certain_coins_are_certain_at_the_ends(word):
    found = coins([Fraction(0), Fraction(1)], np.array([0, 1], dtype=np.uint8), Given(word, word, word, word))
    assert found.tolist() == [False, True]


def test_blocks_have_words_of_their_own(monkeypatch):
    monkeypatch.setattr("deltahist.noise.coins._BLOCK", 3)
    found = coins(
        [Fraction(1, 2)], np.zeros((2, 4), dtype=np.uint8), Given(0, 1 << 63, 0, 1 << 63, 0, 0, 0, 1 << 63)
    )
    assert found.tolist() == [[True, False, True, False], [True, True, True, False]]


def law(p, k):
    return (1 - p) / (1 + p) * p ** abs(k)


def joint(p, r, i, j):
    """P(coarse i, fine j): fine noise plus, but for a probability, noise of the coarse law."""
    stays = r / p * ((1 - p) / (1 - r)) ** 2
    return law(r, j) * ((i == j) * stays + (1 - stays) * law(p, i - j))


def test_coarse_noise_is_fine_noise_plus_a_jump():
    """The identity that the refinement conditions on, summed over fine noise far enough."""
    p, r = Fraction(2, 3), Fraction(1, 4)
    for i in range(-3, 4):
        total = sum(joint(p, r, i, j) for j in range(-60, 61))
        assert float(total) == pytest.approx(float(law(p, i)), rel=1e-9)


@pytest.mark.parametrize(("scale", "finer"), [(3, 1), (5, Fraction(9, 2)), (Fraction(1, 2), Fraction(1, 4))])
def test_coarse_and_fine_noise_together(scale, finer):
    rng = np.random.default_rng(2)
    coarse = discrete_laplace(scale, NUMBER, rng=rng)
    fine = finer_laplace(coarse, Fraction(scale), Fraction(finer), source(rng))
    p, r = np.exp(-1 / float(scale)), np.exp(-1 / float(finer))
    near = range(-6, 7)
    expected = np.array([joint(p, r, i, j) for i, j in itertools.product(near, near)]) * NUMBER
    seen = np.array([((coarse == i) & (fine == j)).sum() for i, j in itertools.product(near, near)])
    large = expected > 5
    seen = np.append(seen[large], NUMBER - seen[large].sum())
    expected = np.append(expected[large], NUMBER - expected[large].sum())
    assert scipy.stats.chisquare(seen, expected).pvalue > ALARM


def test_noise_that_is_kept_at_the_same_scale_and_vanishes_at_a_tiny_one():
    coarse = discrete_laplace(100, (20, 30), rng=np.random.default_rng(3))
    words = source(np.random.default_rng(4))
    same = finer_laplace(coarse, Fraction(100), Fraction(100), words)
    assert (same == coarse).all()
    assert same is not coarse
    assert not finer_laplace(coarse, Fraction(100), Fraction(1, 10_000), words).any()


def test_noise_cannot_grow():
    with pytest.raises(InputError, match=r"scale is 3, and was 2: it must not grow"):
        finer_laplace(np.zeros(1, dtype=np.int64), Fraction(2), Fraction(3), source(None))
