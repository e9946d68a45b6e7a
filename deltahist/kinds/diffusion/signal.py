"""Signals: one user's responses at all levels up to an ε, to be trimmed and handed on."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import NANO, InputError, as_printed, positive
from deltahist.kinds.diffusion.mechanism import DiffusionMechanism
from deltahist.mechanisms.base import vouched

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Signal:
    """One user's responses at every level up to an ε; whoever holds the signal knows that ε about the user, no more.

    It changes in steps: `values[k]` is the response from `starts[k]` to before `starts[k + 1]`, the last one up to and
    with `most`. Users can pass it on without anybody in the middle: each trims it to what the next one may know.
    Source: 2018, section IV-A.

    Parameters
    ----------
    mechanism : the promise.
    owner : whose data they are.
    starts : (k,) rising levels in whole billionths; the first one is the least that it answers.
    most : the largest level that it answers.
    values : (k, n) responses as whole lattice steps, or bits.
    publishable : whether its noise came from the operating system.

    >>> from deltahist.kinds.diffusion import Network
    >>> network = Network.from_edges([("ann", "bob"), ("bob", "cem")])
    >>> mechanism = DiffusionMechanism(network, "exp(3-d)", alpha=10, columns=("age",), step=1)
    >>> signal = Signal(mechanism, "ann", np.array([1, 10**9]), 2 * 10**9, np.array([[37], [35]]))
    >>> signal.at(1.5), signal.trim(0.5).at(0.5), signal.trim(0.5).epsilon
    (array([35.]), array([37.]), Fraction(1, 2))
    """

    mechanism: DiffusionMechanism
    owner: str
    starts: NDArray[np.int64]
    most: int
    values: NDArray[np.int64]
    publishable: bool = field(default=False, init=False)

    @property
    def epsilon(self) -> Fraction:
        """The largest ε that it answers, and tells."""
        return Fraction(self.most, NANO)

    def at(self, epsilon: float | Fraction) -> NDArray[np.float64]:
        """Return the response (n,) at an ε, in the units of the data.

        Raises InputError if it is above the signal's, or below a billionth.
        """
        place = int(np.searchsorted(self.starts, self._level(epsilon), side="right")) - 1
        return self.mechanism.in_units(self.values[place])

    def trim(self, epsilon: float | Fraction) -> Signal:
        """Return the part up to an ε, for somebody who may know that much; of what was above it nothing is left.

        Raises InputError if it is above the signal's, or below a billionth.
        """
        level = self._level(epsilon)
        kept = int(np.searchsorted(self.starts, level, side="right"))
        starts, values = self.starts[:kept].copy(), self.values[:kept].copy()
        return vouched(Signal(self.mechanism, self.owner, starts, level, values), self.publishable)

    def to(self, requester: str) -> Signal:
        """Return the part that a user of the network may know.

        Raises InputError if they are not in the network, not connected, or may know more than the signal says.
        """
        return self.trim(Fraction(int(self.mechanism.levels([self.owner], [requester])[0]), NANO))

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each step: the epsilon from which on it holds, and the response."""
        import pandas as pd

        values = self.mechanism.in_units(self.values)
        columns = {name: values[:, axis] for axis, name in enumerate(self.mechanism.columns)}
        return pd.DataFrame({"epsilon": self.starts / NANO, **columns})

    def __repr__(self) -> str:
        return f"Signal of {self.owner!r} up to ε = {float(self.epsilon):g}, {len(self.starts):,} steps"

    def _level(self, epsilon: float | Fraction) -> int:
        """Return whole billionths of an ε, rounded down."""
        exact = as_printed(positive(epsilon=epsilon))
        level = exact.numerator * NANO // exact.denominator
        if not self.starts[0] <= level <= self.most:
            raise InputError(
                f"epsilon is {float(epsilon):g}: it must be from {self.starts[0] / NANO:g} to "
                f"{float(self.epsilon):g}, all that the signal of {self.owner!r} has"
            )
        return level
