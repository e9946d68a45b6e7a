"""What an account knows of a chain of releases: it pays for the last one only, and from each state once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from deltahist.errors import InputError

#: What begins the names of the facts that keep them.
CHAIN = "chain "


@dataclass(frozen=True)
class ChainCharge:
    """What a chain has been charged, and which of its states that was for.

    A charge is made before noise is drawn, when the state that will hold the noise is not there yet. Until that is
    settled the charge may be used again, by who refines the same state: whatever was drawn meanwhile was not handed
    out. Settled is a state that says it came of that one; of several the first.

    Parameters
    ----------
    nano : billionths charged so far; 0 if the chain is not known.
    source : token of the state that was refined last; None for a chain that begins.
    token : of the state that came of it; None while a charge awaits its state.

    >>> first = ChainCharge().charged(1_000, None, None, "a" * 32).settled("one", None, "a" * 32)
    >>> first.due(3_000), first.charged(3_000, "one", None, "a" * 32).settled("two", "one", "a" * 32).token
    (2000, 'two')
    """

    nano: int = 0
    source: str | None = None
    token: str | None = None

    @classmethod
    def of(cls, kept: dict[str, Any] | None) -> ChainCharge:
        """What a ledger kept; nothing of a chain that it does not know."""
        return cls(**(kept or {}))

    def due(self, nano: int) -> int:
        """Billionths that are still to be charged for a chain to cost `nano` in all."""
        return max(0, nano - self.nano)

    def charged(self, nano: int, token: str | None, source: str | None, chain: str) -> ChainCharge:
        """Once `due` is charged for a release from the state with a token, which came of the state `source`.

        Raises InputError if another state has followed that one: it is a copy, and a second release from it would
        not be paid for.
        """
        if self.nano and not self._goes_on(token, source):
            raise _used(chain)
        return ChainCharge(max(nano, self.nano), token, None)

    def settled(self, token: str, source: str | None, chain: str) -> ChainCharge:
        """Once the state of the release is written; InputError if another one came first."""
        if self.nano and not self._goes_on(token, source):
            raise _used(chain)
        # A charge from this very state still awaits the next one.
        return self if self.token is None and token == self.source else ChainCharge(self.nano, source, token)

    def _goes_on(self, token: str | None, source: str | None) -> bool:
        """Whether a state is the last one, or may be: the first that came of what was charged last."""
        if self.token is not None:
            return token == self.token
        return token == self.source or source == self.source

    def describe(self) -> dict[str, Any]:
        """As a ledger keeps it."""
        return asdict(self)


def _used(chain: str) -> InputError:
    return InputError(
        f"the state of chain {chain} has been used already, as its account knows (is it a copy?): a second release "
        "from it would not be paid for; nothing was drawn or charged; go on with the last state of the chain"
    )
