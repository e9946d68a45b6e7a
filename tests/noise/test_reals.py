"""Uniform reals and functions of them: floats and Decimal objects agree, to the precision that each has."""

import decimal
import math

import mpmath
import numpy as np
import pytest

from deltahist.noise import paths as reals
from deltahist.noise.paths import Uniforms


@pytest.fixture
def drawn():
    """The same 200 reals of 3 planes, as floats and as objects, under 60 digits."""
    words = np.random.default_rng(1).integers(0, 1 << 64, (200, 4, 3), np.uint64)
    with decimal.localcontext(decimal.Context(prec=60)):
        yield Uniforms(words), Uniforms(words, exact=True)


def test_both_precisions_read_the_same_reals(drawn):
    floats, exact = drawn
    for name in ("value", "rest"):
        assert np.allclose(getattr(exact, name).astype(float), getattr(floats, name), rtol=4e-16, atol=0)
    assert {value + rest for value, rest in zip(exact.value.ravel(), exact.rest.ravel(), strict=True)} == {1}
    for slot in range(4):
        pair = (uniforms.exponential(slot).astype(float) for uniforms in drawn)
        assert np.allclose(*pair, rtol=1e-15, atol=0)
        assert (floats.coin(slot) == (floats.value[:, slot] > 0.5)).all()
    for part in (0, 1):
        pair = (uniforms.normals(0, 3)[part].astype(float) for uniforms in drawn)
        assert np.allclose(*pair, rtol=1e-13, atol=1e-14)


def test_a_real_next_to_0_or_1_keeps_its_distance():
    words = np.zeros((2, 1, 2), dtype=np.uint64)
    words[1] = 2**64 - 1
    with decimal.localcontext(decimal.Context(prec=90)):
        for exact in (False, True):
            near = Uniforms(words, exact).exponential(0).astype(float)
            assert near == pytest.approx([129 * math.log(2), 2.0**-129], rel=1e-14)


def test_the_circle_has_all_digits(drawn):
    exact = drawn[1]
    turns = np.append(exact.value[:20, 0], [decimal.Decimal(0), decimal.Decimal("0.5"), decimal.Decimal(1)])
    with mpmath.workdps(80):
        for turn, cosine, sine in zip(turns, *reals.cos_and_sin(turns), strict=True):
            angle = 2 * mpmath.pi * mpmath.mpf(str(turn))
            assert abs(mpmath.mpf(str(cosine)) - mpmath.cos(angle)) < mpmath.mpf(10) ** -56
            assert abs(mpmath.mpf(str(sine)) - mpmath.sin(angle)) < mpmath.mpf(10) ** -56
