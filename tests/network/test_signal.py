"""Signals: trimmed to what the next one may know, with nothing left of what was above it."""

from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.network.mechanism import Signal

NETWORK = dh.Network.from_edges([("ann", "bob"), ("bob", "cem"), ("eve", "fay")])
PROMISE = dh.DiffusionMechanism(NETWORK, "1:2,2:1", 5, columns=("age",), step=0.5)
SIGNAL = Signal(PROMISE, "ann", np.array([1, 5 * 10**8, 15 * 10**8]), 2 * 10**9, np.array([[9], [70], [74]]))


def parts(signal):
    return signal.starts.tolist(), signal.most, signal.values.tolist()


def test_a_signal_is_constant_between_its_jumps():
    values = [SIGNAL.at(e)[0] for e in (1e-9, 0.4999, Fraction(1, 2), 1.4999, 1.5, 2)]
    assert values == [4.5, 4.5, 35, 35, 37, 37]
    assert repr(SIGNAL) == "Signal of 'ann' up to ε = 2, 3 steps"
    trimmed = SIGNAL.trim(1.2)  # nothing is left of what was above
    assert parts(trimmed) == ([1, 5 * 10**8], 12 * 10**8, [[9], [70]])
    assert not np.shares_memory(trimmed.values, SIGNAL.values)
    assert not np.shares_memory(trimmed.starts, SIGNAL.starts)


@pytest.mark.parametrize(("epsilon", "less"), [(0.5, 1e-9), (1, 0.2), (2, 0.5)])
def test_trimming_twice_is_trimming_once(epsilon, less):
    once = SIGNAL.trim(min(epsilon, less))
    assert parts(SIGNAL.trim(epsilon).trim(min(epsilon, less))) == parts(once)
    assert parts(once.trim(min(epsilon, less))) == parts(once)
    for level in (1e-9, less / 2 + 5e-10, min(epsilon, less)):
        if level <= once.epsilon:
            assert once.at(level) == SIGNAL.at(level)


def test_the_next_one_gets_what_they_may_know():
    assert SIGNAL.to("cem").epsilon == 1
    with pytest.raises(dh.InputError):
        SIGNAL.to("eve")
    with pytest.raises(dh.InputError, match="epsilon is 2"):
        SIGNAL.to("cem").to("bob")
