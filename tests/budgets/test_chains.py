"""What an account knows of a chain: which state goes on."""

import pytest

import deltahist as dh
from deltahist.budgets.rules import ChainCharge

CHAIN = "c" * 32


def test_a_copy_of_the_first_state_does_not_take_the_turn_of_the_last_one():
    """A charge for what comes of the second state awaits it; the first has none before it, and is over."""
    waiting = ChainCharge(1, "one", "two").charged(2, "two", "one", CHAIN)
    assert waiting == ChainCharge(2, "two", None)
    for step in (waiting.settled, lambda *state: waiting.charged(3, *state)):
        with pytest.raises(dh.InputError, match="has been used already"):
            step("copy", None, CHAIN)
    assert waiting.settled("three", "two", CHAIN) == ChainCharge(2, "two", "three")
