"""A chain of ever finer releases of the same data, which together cost what the finest one does."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.privacy import Law
from deltahist.strategies.base import Members

#: Longest chain that is read from a file.
_LONGEST = 10_000


@dataclass(frozen=True)
class Chain:
    """Which of the releases of a chain one is; public.

    Parameters
    ----------
    name : 32 hexadecimal digits, drawn at random; empty for a more private copy of a release that is in no chain.
    amounts : ε or ρ of the releases up to this one, rising: all of them together cost the last one.
    copied : ε or ρ of a more private copy that was made of that last one (`dh.tighten`); None for the release itself.
    origin : of a copy: SHA-256 of the release that it was made of, which all copies of that release state. Together
        with that release they cost what it does.

    Raises
    ------
    InputError
        If the amounts do not rise, or the copy is not more private.

    >>> chain = Chain("0" * 32, (Fraction(1), Fraction(2)))
    >>> chain.finer(Fraction(3)).amounts[-1], chain.finer(Fraction(3)).number
    (Fraction(3, 1), 3)
    """

    name: str
    amounts: tuple[Fraction, ...]
    copied: Fraction | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{32}" if self.copied is None else r"([0-9a-f]{32})?", self.name):
            raise InputError(f"name of a chain is {self.name!r}: it must be 32 hexadecimal digits")
        if not 0 < len(self.amounts) <= _LONGEST or not self.amounts[0] > 0:
            raise InputError(
                f"a chain of {len(self.amounts):,} amounts: there must be 1 to {_LONGEST:,}, above zero"
            )
        for before, now in zip(self.amounts, self.amounts[1:], strict=False):
            if not before < now:
                raise InputError(
                    f"amounts of a chain go from {float(before):.10g} to {float(now):.10g}: they must rise"
                )
        if self.copied is not None and not 0 < self.copied < self.amounts[-1]:
            raise InputError(
                f"a copy at {float(self.copied):.10g} of a release at {float(self.amounts[-1]):.10g}: it must be less"
            )
        if not re.fullmatch("" if self.copied is None else r"[0-9a-f]{64}", self.origin):
            raise InputError(
                f"origin is {self.origin!r}: a copy must state the SHA-256 of the release that it was made of, 64 "
                "hexadecimal digits, and other releases none"
            )

    @property
    def number(self) -> int:
        """Which release of the chain it is, from 1."""
        return len(self.amounts)

    @property
    def amount(self) -> Fraction:
        """ε or ρ of the release itself."""
        return self.amounts[-1] if self.copied is None else self.copied

    def finer(self, amount: Fraction) -> Chain:
        """The chain with a further release; InputError unless its amount is larger."""
        if self.copied is not None:
            raise InputError(
                "the release is a more private copy, which cannot be refined: refine the release that it was made of"
            )
        if not amount > self.amounts[-1]:
            raise InputError(
                f"the amount is {float(amount):.10g}, but the release has spent {float(self.amounts[-1]):.10g}: it "
                "must be more (a more private copy of a release is what `tighten` makes)"
            )
        return replace(self, amounts=(*self.amounts, amount))

    def words(self, letter: str) -> str:
        """For people: what all releases of the chain cost together."""
        if self.copied is not None:
            of = f"release {self.number} of chain {self.name}, " if self.name else ""
            amount = f"{letter} = {float(self.amounts[-1]):.10g}"
            return (
                f"a more private copy of {of}a release with {amount} and the SHA-256 {self.origin}: all copies of that "
                f"release together, and it, cost at most {amount}, not the sum"
            )
        whole = f"{letter} = {float(self.amount):.10g}"
        if self.number == 1:
            return f"release 1 of chain {self.name}; it may be refined: all releases then cost what the last one does"
        return f"release {self.number} of chain {self.name}: all {self.number} together cost {whole}, not the sum"

    def describe(self) -> dict[str, Any]:
        """A JSON-ready description; amounts are kept exact."""
        copied = {} if self.copied is None else {"copied": str(self.copied), "origin": self.origin}
        return {"name": self.name, "amounts": [str(a) for a in self.amounts], **copied}

    @classmethod
    def from_description(cls, description: dict[str, Any] | None) -> Chain | None:
        """What `describe` described, from an untrusted file; None for a release that is in no chain."""
        if description is None:
            return None
        if len(description["amounts"]) > _LONGEST:
            raise InputError(f"a chain of {len(description['amounts']):,} releases: at most {_LONGEST:,}")
        copied = description.get("copied")
        amounts = tuple(Fraction(a) for a in description["amounts"])
        origin = description.get("origin", "")
        return cls(description["name"], amounts, None if copied is None else Fraction(copied), str(origin))


class Additive(Protocol):
    """A mechanism that adds noise of public laws: what its releases need to be refined."""

    @property
    def chain(self) -> Chain | None:
        """Which release of a chain it is for."""

    @property
    def draws(self) -> int:
        """How many draws of noise there are."""

    @property
    def noise_groups(self) -> tuple[tuple[Members, Law], ...]:
        """Which draws have which law."""

    @property
    def adds_linearly(self) -> bool:
        """Whether the sum of two noises enters as the sum of what they do alone."""

    def entering(self, noise: NDArray[np.int64]) -> NDArray[np.int64]:
        """What whole-number noise (draws,) adds to the released numbers (size,)."""


def laws_in(chain: Chain | None, laws: tuple[Law, ...]) -> tuple[Law, ...]:
    """The laws of noise that may be refined, if it may."""
    return laws if chain is None or not chain.name else tuple(law.rounded() for law in laws)
