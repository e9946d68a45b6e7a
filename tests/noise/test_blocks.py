"""Blocks of draws: the same when asked for again, of one law, and with streams of their own."""

from __future__ import annotations

import hashlib
import itertools
import os
import struct
from fractions import Fraction

import numpy as np
import pytest

from deltahist.errors import InputError
from deltahist.noise import blocks
from deltahist.noise.blocks import BlockDraws
from deltahist.noise.discrete import discrete_gaussian
from deltahist.noise.exact import KeyStream
from deltahist.privacy import Gaussian, Laplace

LAWS = [Laplace(Fraction(3)), Gaussian(Fraction(9)), Laplace(Fraction(0))]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch) -> None:
    blocks._height.cache_clear()
    monkeypatch.setattr(blocks, "BLOCK", 64)
    yield
    blocks._height.cache_clear()


@pytest.mark.parametrize("group", [0, 1, 2])
@pytest.mark.parametrize("shape", [(50, 7), (50, 100), (50,), (5, 3, 4)])
def test_rows_are_the_same_whenever_they_are_asked_for(group: int, shape: tuple[int, ...]) -> None:
    draws = BlockDraws(LAWS)
    whole = draws(group, 0, shape, slice(0, shape[0]))
    assert whole.shape == shape
    assert whole.any() == (group < 2)
    for start, stop in itertools.combinations((0, 1, 4, 5, shape[0]), 2):
        assert np.array_equal(draws(group, 0, shape, slice(start, stop)), whole[start:stop])


def test_no_two_blocks_have_one_stream() -> None:
    draws = BlockDraws([LAWS[0], LAWS[0]])
    seen = []
    for group, part, shape in itertools.product((0, 1), (0, 1), ((256, 8), (128, 16), (2048,))):
        seen += np.split(draws(group, part, shape, slice(0, shape[0])).ravel(), 32)
    seen += np.split(BlockDraws(LAWS)(0, 0, (256, 8), slice(0, 256)).ravel(), 32)
    # 64 draws of this law agree with a probability of less than 10^-40.
    assert len({part.tobytes() for part in seen}) == len(seen)


def test_a_block_has_the_stream_that_the_proof_names(monkeypatch) -> None:
    root, asked = bytes(range(32)), []
    monkeypatch.setattr(os, "urandom", lambda number: asked.append(number) or root[:number])
    place = struct.pack("<5Q", 1, 2, 50, 7, 3)
    key = hashlib.blake2b(place, key=root, digest_size=32, person=b"deltahist-tiles").digest()
    found = BlockDraws(LAWS)(1, 2, (50, 7), slice(24, 32))
    assert np.array_equal(found, discrete_gaussian(variance=9, shape=(8, 7), rng=KeyStream(key)))
    assert asked == [32]


def test_a_seeded_generator_gives_the_root() -> None:
    once, again, other = (BlockDraws(LAWS, np.random.default_rng(seed)) for seed in (1, 1, 2))
    found = [draws(0, 0, (30, 9), slice(0, 30)) for draws in (once, again, other)]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    with pytest.raises(InputError, match="rng is 7"):
        BlockDraws(LAWS, 7)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_draws_nothing(monkeypatch) -> None:
    draws = BlockDraws(LAWS)
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    with pytest.raises(InputError, match="forked process"):
        draws(0, 0, (5, 5), slice(0, 5))
