"""Exact coins: their chances, and ties. Seeds are fixed."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from deltahist.noise.exact import coins, source

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
    monkeypatch.setattr("deltahist.noise.exact._COINS", 3)
    found = coins(
        [Fraction(1, 2)], np.zeros((2, 4), dtype=np.uint8), Given(0, 1 << 63, 0, 1 << 63, 0, 0, 0, 1 << 63)
    )
    assert found.tolist() == [[True, False, True, False], [True, True, True, False]]
