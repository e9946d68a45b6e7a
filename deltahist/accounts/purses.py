"""Very many small accounts in one: a purse for each person of an account of vectors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.accounts.ledger import Ledger
from deltahist.accounts.purse_log import MARK, MOST, PurseLog, can_pay, pack, pack_charge, pack_purses
from deltahist.accounts.tables import Accounts, Entry
from deltahist.errors import NANO, InputError, one_of

#: Purses of one entry.
_PAGE = 1 << 20


class Purses:
    """Limits of persons, and what each has spent, in one account of a ledger.

    Persons are numbers 0, 1, 2, … in the order in which they join. A limit never changes, and a spent amount stays
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

    def __init__(self, ledger: Ledger | str | Path, name: str, unit: str = "epsilon") -> None:
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self.name, self.unit = name, one_of(("epsilon", "rho"), unit=unit)
        # A turn within a turn comes as far as the ledger, which refuses it.
        self._lock = threading.RLock()
        self._log = PurseLog()
        self.ledger.account(name, self._rule)

    def join(
        self, limits: ArrayLike, radii: ArrayLike | None = None, marks: NDArray[np.bytes_] | None = None
    ) -> range:
        """Open purses, durably, and return the numbers of their persons.

        Parameters
        ----------
        limits : (m,) billionths. radii : (m,) each person's own radius; NaN, or None for all, is none.
        marks : (m,) 16 bytes each, by which `Turn.find` knows the persons again; None if nobody is to be.

        Raises
        ------
        InputError
            On limits or radii that are negative, too large or of different lengths. Nobody joins then.
        """
        with self.turn() as turn:
            return turn.join(limits, radii, marks)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """Hold all purses, alone: changes are durable when the block ends, and undone if it raises.

        Raises DamagedFile if the log contradicts itself.
        """
        with self._lock:
            with self.ledger.transaction() as accounts:
                if accounts.rule(self.name) != self._rule:
                    raise InputError(
                        f"account {self.name!r} is not what it was when it was opened (closed meanwhile?): nothing was "
                        "charged; open it again"
                    )
                self._read(accounts.entries(self.name, self._log.last))
                turn = Turn(accounts, self.name, self._log)
                yield turn
            self._read(turn.entered)

    def _read(self, entries: Sequence[Entry]) -> None:
        """Read entries on. If that breaks off, nothing is known, and all is read again."""
        log, self._log = self._log, PurseLog()
        log.read(self.name, entries)
        self._log = log

    @property
    def _rule(self) -> dict[str, str]:
        return {"kind": "purses", "unit": self.unit}


class Turn:
    """Purses within one transaction of their ledger.

    Attributes
    ----------
    accounts : of the transaction, for what else belongs to it.
    limits, spent : (m,) billionths, read-only, as they were when the turn began. marks : (m,) of whom they are.
    classes : (c,) the different radii that there are, read-only; NaN is none. which : (m,) whose radius is which.
    asked : whether there was a charge before, to whomever.
    """

    def __init__(self, accounts: Accounts, name: str, log: PurseLog) -> None:
        self.accounts, self._name, self._log = accounts, name, log
        self.entered: list[Entry] = []
        self.limits, self.spent, self.which, self.marks = log.limits, log.spent, log.which, log.marks
        self.classes = np.array(list(log.classes), dtype=np.float64)
        self._joined = 0
        self.asked = log.asked

    def charge(self, times: ArrayLike, price: int | ArrayLike) -> NDArray[np.bool_]:
        """Charge whoever can pay, and return who could: the others are not charged.

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
        if self._joined:
            raise RuntimeError("a turn charges before anybody joins: who joins is known when it has ended")
        times = np.asarray(times, dtype=np.int64)
        prices = np.atleast_1d(np.asarray(price, dtype=np.int64))
        if times.shape != self.limits.shape or prices.shape not in ((1,), self.classes.shape):
            raise ValueError(
                f"{times.shape} multipliers and {prices.shape} prices for {self.limits.shape} purses"
            )
        if (prices < 0).any() or (prices > MOST).any() or (times < 0).any():
            raise ValueError("prices and multipliers must not be negative, nor prices above 10^9")
        each = prices if len(prices) == 1 else prices[self.which]
        payers = (times > 0) & can_pay(self.limits - self.spent, times, each)
        self._enter("charge", int(prices.max(initial=0)), pack_charge(np.where(payers, times, 0), prices))
        return payers

    def find(self, marks: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Return the numbers (m,) of the persons with these marks when the turn began; -1 for unknown ones."""
        return self._log.find(marks)

    def join(
        self, limits: ArrayLike, radii: ArrayLike | None = None, marks: NDArray[np.bytes_] | None = None
    ) -> range:
        """Open purses as `Purses.join` does, within the turn."""
        limits = np.asarray(limits, dtype=np.int64)
        radii = np.full(len(limits), np.nan) if radii is None else np.asarray(radii, dtype=np.float64)
        marks = np.zeros(len(limits), f"S{MARK}") if marks is None else np.asarray(marks, f"S{MARK}")
        if marks.shape != limits.shape:
            raise ValueError(f"{marks.shape} marks for {limits.shape} limits")
        if limits.ndim != 1 or limits.shape != radii.shape:
            raise InputError(
                f"{limits.shape} limits and {radii.shape} radii: there must be one of each for a person"
            )
        if limits.size and not 0 <= limits.min() <= limits.max() <= MOST:
            raise InputError(
                f"limits go from {limits.min() / NANO:g} to {limits.max() / NANO:g}: they must lie between 0 and 10^9"
            )
        if (radii < 0).any() or np.isinf(radii).any():
            raise InputError(
                f"radius is {radii[(radii < 0) | np.isinf(radii)][0]}: it must be finite, zero or more"
            )
        first = len(self.limits) + self._joined
        for start in range(0, len(limits), _PAGE):
            part = slice(start, start + _PAGE)
            data = pack_purses(limits[part], np.zeros_like(limits[part]), radii[part], marks[part])
            self._enter("join", len(limits[part]), data)
        self._joined += len(limits)
        return range(first, first + len(limits))

    def _enter(self, kind: str, nano: int, data: bytes) -> None:
        if not self.entered and self._log.is_long:
            self._rewrite_log()
        last = self.entered[-1].number if self.entered else self._log.last
        self._keep(Entry(last + 1, kind, nano, data))

    def _rewrite_log(self) -> None:
        """Write all purses as they are, and drop the entries that led there."""
        log = self._log
        self._keep(Entry(log.last + 1, "begin", int(log.asked), pack(self.classes)))
        radii = self.classes[self.which] if len(self.classes) else np.zeros(0)
        for start in range(0, len(self.limits), _PAGE):
            part = slice(start, start + _PAGE)
            data = pack_purses(self.limits[part], self.spent[part], radii[part], self.marks[part])
            self._keep(Entry(self.entered[-1].number + 1, "join", len(self.limits[part]), data))
        self.accounts.drop_entries(self._name, log.last)

    def _keep(self, entry: Entry) -> None:
        self.accounts.enter(self._name, entry)
        self.entered.append(entry)
