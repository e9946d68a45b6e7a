"""Paths of whole numbers: what floats leave open is decided exactly, whatever their precision."""

import decimal
import math
from decimal import Decimal

import numpy as np
import pytest

from deltahist.noise import paths as module
from deltahist.noise.paths import BitPaths, VectorPaths
from deltahist.noise.reals import Uniforms

KEY = bytes(range(32))
UNIT = 10**9


def requests(number, users):
    rng = np.random.default_rng(1)
    levels = (UNIT * np.exp(rng.uniform(math.log(0.5), math.log(8), number))).astype(np.int64)
    return rng.integers(0, users, number), levels


class Recorded(module.PathSteps):
    """What a formula says, with its bounds."""

    def __init__(self, users):
        super().__init__(users)
        self.said = {}

    def jump(self, rows, place, level, blur):
        super().jump(rows, place, level, blur)
        for row, x, bound in zip(rows, level, level.astype(float) * blur, strict=True):
            self.said["level", row, place] = (x, bound)

    def value(self, rows, place, value, error):
        super().value(rows, place, value, error)
        for row, v, bound in zip(rows, value, error, strict=True):
            for i, x in enumerate(v):
                self.said["value", row, place, i] = (x, bound)


def said(paths, users, span, planes):
    with decimal.localcontext(
        decimal.Context(prec=20 * planes, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
    ):
        steps = paths._steps(users, span, planes)
    return {k: v for k, v in steps.said.items() if not steps.undecided[k[1]]}


CASES = [
    (VectorPaths(KEY, 1, 1), (0.05, 20), 40),
    (VectorPaths(KEY, 2, 1000), (0.5, 15), 40),
    (VectorPaths(KEY, 20, 1), (0.7, 2), 5),
    (BitPaths(KEY), (1e-6, math.inf), 100),
]


@pytest.mark.parametrize(("paths", "span", "number"), CASES)
def test_float_and_decimal_evaluate_the_same_formula(monkeypatch, paths, span, number):
    """Floats stay ten times within their bounds, which are narrow enough to leave next to nothing open."""
    monkeypatch.setattr(module, "PathSteps", Recorded)
    floats, exact = (said(paths, np.arange(number), span, planes) for planes in (2, 3))
    assert len(floats) > 5 * number
    assert floats.keys() <= exact.keys()
    for place, (x, bound) in floats.items():
        true = exact[place][0]
        assert abs(Decimal(float(x)) - Decimal(true)) <= Decimal(bound) / 10
        assert bound <= 1e-5 * max(1, abs(x))


def coarse(bits):
    """Floats from the first bits of the reals only."""

    class Coarse(Uniforms):
        def __init__(self, words, exact=False):
            if not exact:
                words = (words >> np.uint64(64 - bits) << np.uint64(64 - bits))[..., :1]
            super().__init__(words, exact)

    return Coarse


@pytest.mark.parametrize("paths", [VectorPaths, BitPaths])
def test_answers_do_not_depend_on_the_precision_of_the_floats(monkeypatch, paths):
    """With 40 bits of the reals, and a unit of 2^-26 to match, next to all numbers are open: answers are the same.

    With the unit of full floats they are not: this is what the evaluation in Decimal is for.
    """
    users, levels = requests(1000, users=8)

    def answers():
        if paths is BitPaths:
            return BitPaths(KEY).at(users, levels, np.ones(len(users), int))
        return VectorPaths(KEY, 2, 10**11).at(users, levels)

    true = answers()
    monkeypatch.setattr(module, "Uniforms", coarse(40))
    if paths is VectorPaths:
        assert (answers() != true).any()
    monkeypatch.setattr(module, "_PRECISION", 26)
    monkeypatch.setattr(module, "_EDGE", 4)
    assert (answers() == true).all()


def test_requests_next_to_a_jump(monkeypatch):
    """The billionth where a value begins, and the one before it, with coarser floats."""
    first = VectorPaths(KEY, 2, 1000)
    starts = [first.signal(user, UNIT // 2, 8 * UNIT)[0][1:] for user in range(20)]
    users = np.repeat(np.arange(20), [2 * len(s) for s in starts])
    levels = np.concatenate([np.concatenate([s, s - 1]) for s in starts])
    true = first.at(users, levels)
    monkeypatch.setattr(module, "Uniforms", coarse(32))
    assert (VectorPaths(KEY, 2, 1000).at(users, levels) != true).any()
    monkeypatch.setattr(module, "_PRECISION", 19)
    monkeypatch.setattr(module, "_EDGE", 4)
    assert (VectorPaths(KEY, 2, 1000).at(users, levels) == true).all()


def test_a_value_begins_with_the_first_billionth_above_its_jump(monkeypatch):
    """At the billionth below it the response would tell of a level that is above what was promised."""
    monkeypatch.setattr(module, "PathSteps", Recorded)
    for paths, bit in ((VectorPaths(KEY, 2, 1000), ()), (BitPaths(KEY), (1,))):
        exact = said(paths, np.arange(10), (0.4, 9), 3)
        for user in range(10):
            jumps = (x for (kind, row, *_), (x, _) in exact.items() if (kind, row) == ("level", user))
            above = {math.floor(x * UNIT) + 1 for x in jumps}
            assert set(paths.signal(user, *bit, UNIT // 2, 8 * UNIT)[0][1:].tolist()) <= above


def test_all_through_decimal(monkeypatch):
    users, levels = requests(300, users=4)
    true = VectorPaths(KEY, 3, 1000).at(users, levels)
    right = module.KeyedPaths._evaluated
    monkeypatch.setattr(
        module.KeyedPaths,
        "_evaluated",
        lambda self, users, span, planes: (
            [None] * len(users) if planes == 2 else right(self, users, span, planes)
        ),
    )
    assert (VectorPaths(KEY, 3, 1000).at(users, levels) == true).all()
