"""Random words, and exact decisions with them: streams, keyed words, tables and their ties, coins. Seeds are fixed."""

import decimal
import hmac
import multiprocessing
import os
import struct
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, strategies as st
from scipy import stats

from deltahist.noise import discrete_gaussian, discrete_laplace, exact
from deltahist.noise.exact import InversionTable, exp_bounds, open_stream, open_words, seeded_words, throw_coins
from deltahist.noise.paths import keyed_words
from deltahist.noise.samplers import _digit_table, _gaussian_table, _geometric_table, _laplace_size_table
from tests.words import Scripted

#: One false alarm in a million for each of the goodness-of-fit tests.
ALARM = 1e-6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks only")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_forked_processes_draw_different_noise(draw):
    # Tables are made and a stream is used before the fork; equal noise by chance: less than 2^-60.
    found = [draw(1e6, 4)]
    for _ in range(2):
        with multiprocessing.get_context("fork").Pool(1) as child:
            found.append(child.apply(draw, (1e6, 4)))
    found.append(draw(1e6, 4))
    assert len({noise.tobytes() for noise in found}) == 4


@pytest.mark.parametrize("number", [0, 7, 8193, 20_001])
def test_a_stream_is_the_ciphers_key_stream(monkeypatch, number):
    # Pieces of any size continue each other, whatever the size of the blocks that are enciphered.
    monkeypatch.setattr(exact.os, "urandom", lambda size: bytes(range(size)))
    cipher = Cipher(algorithms.AES(bytes(range(32))), modes.CTR(bytes(range(16)))).encryptor()
    expected = np.frombuffer(cipher.update(bytes(8 * (number + 3))), dtype=np.uint64)
    stream = open_stream()
    words = np.concatenate([stream(number), stream(3)])
    assert words.dtype == np.uint64
    assert np.array_equal(words, expected)


def test_keyed_words_are_the_ciphers_blocks():
    """Under HMAC-SHA-256 of the label; user, purpose, plane and pair of words, little end first."""
    key = hmac.digest(bytes(32), b"test", "sha256")
    block = struct.pack("<QHHI", 7, 3, 1, 2)
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    expected = struct.unpack("<QQ", cipher.update(block))
    words = keyed_words(bytes(32), "test", 3, np.array([7]), first=4, number=2, planes=2)
    assert tuple(words[0, :, 1]) == expected


TABLES = {
    "geometric": _geometric_table(Fraction(37, 10)),
    "digit": _digit_table(Fraction(5000)),
    "magnitude": _laplace_size_table(Fraction(1, 2)),
    "gaussian": _gaussian_table(Fraction(7)),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("k", [0, 3, 9])
def test_a_tie_is_settled_by_further_bits(name, k):
    table = TABLES[name]
    k = min(k, len(table.thresholds) - 1)
    word = int(table.thresholds[k])
    following = table.bounds(k, 128)[0] & (2**64 - 1)
    # The real begins like F(k); its next word is just below or above F(k)'s own next word.
    below = table.draw(1, Scripted(word, following - 1))[0]
    above = table.draw(1, Scripted(word, following + 1))[0]
    assert (below, above) == (k, k + 1)
    # The second word ties as well, and the third decides.
    third = table.bounds(k, 192)[0] & (2**64 - 1)
    assert table.draw(1, Scripted(word, following, max(third - 1, 0)))[0] == k
    assert table.draw(1, Scripted(word, following, third + 1))[0] == k + 1


class Listed:
    """The words of a list, then those of a seeded generator."""

    def __init__(self, word, seed):
        self.rest, self.then = word, seeded_words(np.random.default_rng(seed))

    def __call__(self, number):
        out, self.rest = self.rest[:number], self.rest[number:]
        return np.concatenate([out, self.then(number - len(out))])


def searched(table, word, words):
    """The definition of a draw: how many thresholds are at most a word; more words decide ties, one by one."""
    found = np.searchsorted(table.thresholds, word, side="right")
    for i in np.flatnonzero(np.isin(word, table.thresholds)):
        found[i] = table._break_tie(int(word[i]), words)
    return found


@pytest.mark.parametrize(
    "table",
    [*TABLES.values(), _laplace_size_table(Fraction(20)),
     InversionTable([(0, 0)], lambda k, bits: (0, 0)),
     InversionTable([(k << 128, k << 128) for k in (0, 1 << 48, (1 << 64) - 1)], lambda k, bits: (k, k + 1))],
)  # fmt: skip
def test_a_guide_finds_what_the_search_finds(table):
    # The first and the last word of every fifth place of the guide, and all words around a threshold.
    starts = np.arange(0, 1 << 16, 5, dtype=np.uint64) << np.uint64(48)
    near = [table.thresholds + np.uint64(step) for step in (0, 1, (1 << 64) - 1)]  # wraps around: any word will do
    word = np.concatenate([starts, starts - np.uint64(1), starts + np.uint64(1), *near])
    listed = Listed(word, 6)
    drawn = table.draw(len(word), listed)
    assert drawn.dtype == np.int64
    then = seeded_words(np.random.default_rng(6))
    assert np.array_equal(drawn, searched(table, word, then))
    assert listed(1) == then(1)  # both took as many words
    # A few words are searched without a guide.
    some = np.concatenate([word[:: len(word) // 1000], *near])[:4000]
    then = seeded_words(np.random.default_rng(7))
    assert np.array_equal(table.draw(len(some), Listed(some, 7)), searched(table, some, then))


@given(st.fractions(0, 60), st.integers(64, 256))
def test_bounds_of_exp_hold_and_are_close(x, bits):
    low, high = exp_bounds(x, bits)
    with decimal.localcontext(decimal.Context(prec=200)):
        value = (-(decimal.Decimal(x.numerator) / decimal.Decimal(x.denominator))).exp() * decimal.Decimal(2) ** bits
        assert low - 1 <= value <= high + 1
    assert high - low <= 4


def test_coins_have_their_chances():
    chances = (Fraction(1, 3), Fraction(1), Fraction(0), Fraction(1, 1000))
    which = np.repeat(np.arange(4, dtype=np.uint8), 200_000)
    shown = throw_coins(chances, which, open_words(np.random.default_rng(1))).reshape(4, -1).sum(axis=1)
    assert shown[1:3].tolist() == [200_000, 0]
    for chance, found in ((chances[0], shown[0]), (chances[3], shown[3])):
        assert stats.binomtest(int(found), 200_000, float(chance)).pvalue > ALARM


def test_a_word_that_equals_the_chance_s_first_bits_is_decided_by_more():
    third = (1 << 64) // 3
    for more, shown in ((0, True), (third, None), ((1 << 64) - 1, False)):
        words = Scripted(third, more, 0)
        found = throw_coins([Fraction(1, 3)], np.zeros(1, dtype=np.uint8), words)
        assert found[0] == (True if shown is None else shown)
        assert len(words.left) == (0 if shown is None else 1)  # a third's bits repeat: another tie
