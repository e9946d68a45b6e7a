"""Very many small accounts in one: a purse for each person, kept as a log that is read forward.

An account of a ledger keeps three kinds of entries. "join" opens purses, "charge" takes from some of them, "begin"
says that everything before it is told again by the joins that follow. Whoever has read the log up to a number needs
only what came since.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budgets.accounts import Accounts, Entry
from deltahist.budgets.ledger import Ledger
from deltahist.budgets.packing import pack, unpack
from deltahist.errors import NANO, DamagedFile, InputError, one_of

#: Billionths of the largest limit: sums of a limit and a charge that it pays stay within 64 bits.
_MOST = 10**9 * NANO
#: A log is begun anew when it holds more than so many entries, or several times what its purses take.
_LONGEST, _LITTLE, _SEVERAL = 1_000, 1 << 20, 2
#: Purses that one entry tells of.
_PAGE = 1 << 20
#: Columns of what begins a log anew: the classes of radius, in order, since charges name them by their numbers.
_BEGIN = ("float64",)
#: Columns of a join: limits, what is spent, radii.
_JOIN = ("int64", "int64", "float64")
#: Columns of a charge: a price for all, or for each class of radius; multipliers; whose they are, if not of everybody.
_CHARGE = ("int64", "uint8 uint16 uint32 uint64", "uint32")


@dataclass(frozen=True, eq=False)
class Purses:
    """Limits of persons, and what each has spent, in one account of a ledger.

    Persons are numbers 0, 1, 2, … in the order in which they join. A limit never changes, and what is spent stays
    spent. Amounts are whole billionths.

    Parameters
    ----------
    ledger : a Ledger, or where one is; it is made if it does not exist.
    name : of the account.
    unit : "epsilon" or "rho", in which all purses are kept.

    Raises
    ------
    InputError
        If the account was opened as something else.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> purses = Purses(f"{folder.name}/city.ledger", "people")
    >>> purses.join([10**9, 10**8])
    range(0, 2)
    >>> with purses.turn() as turn:
    ...     turn.charge([1, 2], price=10**8).tolist()
    [True, False]
    >>> with purses.turn() as turn:
    ...     turn.spent.tolist()
    [100000000, 0]
    >>> folder.cleanup()
    """

    ledger: Ledger | str | Path
    name: str
    unit: str = "epsilon"
    # A turn within a turn comes as far as the ledger, which refuses it.
    _lock: Any = field(default_factory=threading.RLock, init=False, repr=False)
    _known: list[_State] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        one_of(("epsilon", "rho"), unit=self.unit)
        if not isinstance(self.ledger, Ledger):
            object.__setattr__(self, "ledger", Ledger(self.ledger))
        self._book.account(self.name, self._rule)

    def join(self, limits: ArrayLike, radii: ArrayLike | None = None) -> range:
        """Open purses, durably, and return the numbers of their persons.

        Parameters
        ----------
        limits : (m,) billionths. radii : (m,) each person's own radius; NaN, or None for all, is none.

        Raises
        ------
        InputError
            On limits or radii that are negative, too large or of different lengths. Nobody joins then.
        """
        with self.turn() as turn:
            return turn.join(limits, radii)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """All purses, alone: what is changed is durable when the block ends, and undone if it raises.

        Raises DamagedFile if the log contradicts itself.
        """
        with self._lock:
            with self._book.transaction() as accounts:
                if accounts.rule(self.name) != self._rule:
                    raise InputError(
                        f"account {self.name!r} is not what it was when it was opened (closed meanwhile?): nothing was "
                        "charged; open it again"
                    )
                self._read(accounts.entries(self.name, self._state.last))
                turn = Turn(accounts, self.name, self._state)
                yield turn
            self._read(turn.entered)

    @property
    def _state(self) -> _State:
        return self._known[0] if self._known else _State()

    def _read(self, entries: Sequence[Entry]) -> None:
        """Bring what is known up to date. If that breaks off, nothing is known, and all is read again."""
        state = self._state
        self._known.clear()
        try:
            for entry in entries:
                state.read(entry)
        except ValueError as problem:
            raise DamagedFile(
                f"account {self.name!r} of the ledger is damaged at entry {entry.number}: {problem}; nothing was "
                "charged"
            ) from None
        self._known.append(state)

    @property
    def _book(self) -> Ledger:
        assert isinstance(self.ledger, Ledger)
        return self.ledger

    @property
    def _rule(self) -> dict[str, str]:
        return {"kind": "purses", "unit": self.unit}


class Turn:
    """Purses within one transaction of their ledger.

    Attributes
    ----------
    accounts : of the transaction, for what else belongs to it.
    limits, spent : (m,) billionths, read-only, as they were when the turn began.
    classes : (c,) the different radii that there are, read-only; NaN is none. which : (m,) whose radius is which.
    """

    def __init__(self, accounts: Accounts, name: str, state: _State) -> None:
        self.accounts, self._name, self._state = accounts, name, state
        self.entered: list[Entry] = []
        self.limits, self.spent, self.which = state.limits, state.spent, state.which
        self.classes = np.array(list(state.classes), dtype=np.float64)

    def charge(self, times: ArrayLike, price: int | ArrayLike) -> NDArray[np.bool_]:
        """Charge whoever can pay, and say who could: the others are not charged.

        Parameters
        ----------
        times : (m,) whole numbers, how often each person pays; who pays 0 times takes no part.
        price : billionths of one time, for all or (c,) for each of `classes`.

        Returns
        -------
        bool (m,) : who takes part.
        """
        if any(entry.kind == "charge" for entry in self.entered):
            raise RuntimeError("a turn charges once: what is spent is known again when it has ended")
        times = np.asarray(times, dtype=np.int64)
        prices = np.atleast_1d(np.asarray(price, dtype=np.int64))
        if times.shape != self.limits.shape or prices.shape not in ((1,), self.classes.shape):
            raise ValueError(
                f"{times.shape} multipliers and {prices.shape} prices for {self.limits.shape} purses"
            )
        if (prices < 0).any() or (prices > _MOST).any() or (times < 0).any():
            raise ValueError("prices and multipliers must not be negative, nor prices above 10^9")
        each = prices if len(prices) == 1 else prices[self.which]
        payers = (times > 0) & _can_pay(self.limits - self.spent, times, each)
        self._enter("charge", int(prices.max(initial=0)), _packed(np.where(payers, times, 0), prices))
        return payers

    def join(self, limits: ArrayLike, radii: ArrayLike | None = None) -> range:
        """As `Purses.join`, within the turn."""
        limits = np.asarray(limits, dtype=np.int64)
        radii = np.full(len(limits), np.nan) if radii is None else np.asarray(radii, dtype=np.float64)
        if limits.ndim != 1 or limits.shape != radii.shape:
            raise InputError(
                f"{limits.shape} limits and {radii.shape} radii: there must be one of each for a person"
            )
        if limits.size and not 0 <= limits.min() <= limits.max() <= _MOST:
            raise InputError(
                f"limits go from {limits.min() / NANO:g} to {limits.max() / NANO:g}: they must lie between 0 and 10^9"
            )
        if (radii < 0).any() or np.isinf(radii).any():
            raise InputError(
                f"radius is {radii[(radii < 0) | np.isinf(radii)][0]}: it must be finite, zero or more"
            )
        first = len(self.limits) + sum(entry.nano for entry in self.entered if entry.kind == "join")
        for start in range(0, len(limits), _PAGE):
            part = slice(start, start + _PAGE)
            self._enter(
                "join", len(limits[part]), _opening(limits[part], np.zeros_like(limits[part]), radii[part])
            )
        return range(first, first + len(limits))

    def _enter(self, kind: str, nano: int, data: bytes) -> None:
        if not self.entered and self._state.is_long:
            self._begin_anew()
        last = self.entered[-1].number if self.entered else self._state.last
        self._keep(Entry(last + 1, kind, nano, data))

    def _begin_anew(self) -> None:
        """Tell all purses again, and forget how they came to be."""
        state = self._state
        self._keep(Entry(state.last + 1, "begin", 0, pack(self.classes)))
        radii = self.classes[self.which] if len(self.classes) else np.zeros(0)
        for start in range(0, len(self.limits), _PAGE):
            part = slice(start, start + _PAGE)
            data = _opening(self.limits[part], self.spent[part], radii[part])
            self._keep(Entry(self.entered[-1].number + 1, "join", len(self.limits[part]), data))
        self.accounts.drop_entries(self._name, state.last)

    def _keep(self, entry: Entry) -> None:
        self.accounts.enter(self._name, entry)
        self.entered.append(entry)


class _State:
    """What a log says up to its entry `last`."""

    def __init__(self) -> None:
        self.last = -1
        self._begin(np.zeros(0))

    def _begin(self, classes: NDArray[np.float64]) -> None:
        self._number = self._entries = self._bytes = 0
        self._columns: list[NDArray[Any]] = [
            np.zeros(0, dtype=kind) for kind in (np.int64, np.int64, np.uint32)
        ]
        self.classes: dict[float, int] = {}
        self._numbers(classes)

    def _numbers(self, radii: NDArray[np.float64]) -> NDArray[np.uint32]:
        """Numbers of the classes of radii; a radius that is new makes a class."""
        # NaN equals nothing, and must be found again: one object stands for it.
        names = [_NONE if radius != radius else radius for radius in radii.tolist()]
        return np.array([self.classes.setdefault(name, len(self.classes)) for name in names], dtype=np.uint32)

    @property
    def limits(self) -> NDArray[np.int64]:
        """Read-only, as are the others."""
        return self._view(0)

    @property
    def spent(self) -> NDArray[np.int64]:
        return self._view(1)

    @property
    def which(self) -> NDArray[np.uint32]:
        return self._view(2)

    @property
    def is_long(self) -> bool:
        """Whether the log is to be begun anew."""
        return self._entries > _LONGEST or self._bytes > max(_LITTLE, _SEVERAL * 20 * self._number)

    def read(self, entry: Entry) -> None:
        """Take the next entry of the log; ValueError, with the reason, if it does not fit to what came before."""
        if entry.number != self.last + 1 and entry.kind != "begin":
            raise ValueError(f"entries {self.last + 1} to {entry.number - 1} are missing")
        if entry.kind == "begin":
            self._begin(*unpack(entry.data, _BEGIN))
        elif entry.kind == "join":
            self._join(*unpack(entry.data, _JOIN))
        elif entry.kind == "charge":
            self._charge(*unpack(entry.data, _CHARGE, optional=1))
        else:
            raise ValueError(f"it is of kind {entry.kind!r}, which this version does not know")
        self.last = entry.number
        self._entries += 1
        self._bytes += len(entry.data) if entry.kind == "charge" else 0

    def _join(self, limits: NDArray[np.int64], spent: NDArray[np.int64], radii: NDArray[np.float64]) -> None:
        if not len(limits) == len(spent) == len(radii):
            raise ValueError("its columns are of different lengths")
        if ((limits < spent) | (spent < 0) | (limits > _MOST)).any():
            raise ValueError("purses have spent more than their limits")
        different, which = np.unique(radii, return_inverse=True)
        numbers = self._numbers(different)
        start, self._number = self._number, self._number + len(limits)
        if self._number > len(self._columns[0]):
            room = max(self._number, 2 * len(self._columns[0]))
            self._columns = [
                np.concatenate([c[:start], np.zeros(room - start, c.dtype)]) for c in self._columns
            ]
        for column, values in zip(self._columns, (limits, spent, numbers[which]), strict=True):
            column[start : self._number] = values

    def _charge(
        self, prices: NDArray[np.int64], times: NDArray[Any], who: NDArray[np.uint32] | None = None
    ) -> None:
        if len(times) != (self._number if who is None else len(who)):
            raise ValueError(f"{len(times)} multipliers do not fit")
        if who is not None and ((who >= self._number).any() or (who[1:] <= who[:-1]).any()):
            raise ValueError("it charges persons that there are not, or one of them twice")
        if len(prices) not in (1, len(self.classes)) or (prices < 0).any() or (prices > _MOST).any():
            raise ValueError(f"{len(prices)} prices do not fit")
        some: Any = slice(None) if who is None else who
        each = prices if len(prices) == 1 else prices[self.which[some]]
        often = times.astype(np.int64)
        if (often < 0).any():
            raise ValueError("multipliers are too large")
        if not _can_pay(self.limits[some] - self.spent[some], often, each).all():
            raise ValueError("purses would spend more than their limits")
        spent: NDArray[np.int64] = self._columns[1][: self._number]
        spent[some] += often * each

    def _view(self, column: int) -> NDArray[Any]:
        view = self._columns[column][: self._number]
        view.flags.writeable = False
        return view


_NONE = float("nan")


def _can_pay(
    left: NDArray[np.int64], times: NDArray[np.int64], prices: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether what is left is enough for each; divided, since a product might overflow."""
    return np.asarray((times <= left // np.maximum(prices, 1)) | (prices == 0))


def _opening(limits: NDArray[np.int64], spent: NDArray[np.int64], radii: NDArray[np.float64]) -> bytes:
    """The data of a join: much of it repeats itself."""
    return pack(limits, spent, radii, compress=True)


def _packed(times: NDArray[np.int64], prices: NDArray[np.int64]) -> bytes:
    """The data of a charge: multipliers of all, or of those who pay and who they are, whichever is shorter."""
    small = np.min_scalar_type(int(times.max(initial=0)))
    who = np.flatnonzero(times)
    if len(who) * (4 + small.itemsize) < len(times) * small.itemsize:
        return pack(prices, times[who].astype(small), who.astype(np.uint32))
    return pack(prices, times.astype(small))
