"""Very many small accounts in one: a purse for each person of an account of vectors, kept as a log of columns.

An entry of the log is a "join" that opens purses, a "charge" that takes from some of them, or a "begin". A "begin" says
that the joins behind it repeat all that came before, and (by 1 or 0) whether there was a charge. Whoever has read the
log up to a number needs only what came since.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.accounts.ledger import open_account
from deltahist.errors import NANO, DamagedFile, InputError, one_of
from deltahist.personal.tables import Accounts, Entry

if TYPE_CHECKING:
    from deltahist.accounts.ledger import Ledger

#: Billionths of the largest limit: sums of a limit and a charge that it pays stay within 64 bits.
_MOST = 10**9 * NANO
#: Purses of one entry.
_PAGE = 1 << 20
#: A log of more entries than this is begun anew.
_LONGEST = 1_000
#: So is a log of more bytes than this, if it takes more than `_GROWTH` times the bytes of its purses.
_SMALL_LOG, _GROWTH = 1 << 20, 2
#: Bytes of a mark, by which a person is known again.
_MARK = 16
#: Bytes of a purse: limit, sum, class and mark.
_PURSE = 36
#: Columns of each kind of entry, and how many of the last ones may be missing.
_COLUMNS = {
    # The classes of radius, in order, since charges name them by their numbers.
    "begin": (("float64",), 0),
    # Limits, amounts spent, radii, and marks.
    "join": (("int64", "int64", "float64", "uint8"), 0),
    # A price for all, or for each class of radius; multipliers; whose they are, if not of everybody.
    "charge": (("int64", "uint8 uint16 uint32 uint64", "uint32"), 1),
}


class PurseLog:
    """The purses that a log tells of up to its entry `last`.

    Attributes
    ----------
    limits, spent : (m,) billionths. which : (m,) classes of radius. marks : (m,) by which persons are known again.
    classes : the number of each radius that there is. asked : whether anything was charged, to whomever: public.
    """

    def __init__(self) -> None:
        self.last, self.asked = -1, False
        self._begin(np.zeros(0))

    def _begin(self, radii: NDArray[np.float64]) -> None:
        self._entries = self._bytes = 0
        self.limits, self.spent = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.which, self.marks = np.zeros(0, np.uint32), np.zeros(0, f"S{_MARK}")
        self._numbers: dict[bytes, int] = {}
        self.classes: dict[float, int] = {}
        self._number_classes(radii)

    def _number_classes(self, radii: NDArray[np.float64]) -> NDArray[np.uint32]:
        """Return the numbers of the classes of radii; a radius that is new makes a class."""
        # NaN equals nothing, and must be found again: one object stands for it.
        names = [_NONE if radius != radius else radius for radius in radii.tolist()]
        return np.array([self.classes.setdefault(name, len(self.classes)) for name in names], dtype=np.uint32)

    @property
    def duplicates(self) -> int:
        """Number of purses whose person has another one."""
        return int((self.marks != b"").sum()) - len(self._numbers)

    def find(self, marks: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Return the numbers (m,) of the persons with these marks; -1 for unknown ones."""
        return np.array([self._numbers.get(mark, -1) for mark in marks.tolist()], dtype=np.int64)

    @property
    def is_long(self) -> bool:
        """Whether the log is to be begun anew."""
        return self._entries > _LONGEST or self._bytes > max(_SMALL_LOG, _GROWTH * _PURSE * len(self.limits))

    def read(self, account: str, entries: Iterable[Entry]) -> None:
        """Read the next entries of an account's log; DamagedFile if one of them does not fit."""
        for entry in entries:
            try:
                self._read(entry)
            except ValueError as problem:
                raise DamagedFile(
                    f"account {account!r} of the ledger is damaged at entry {entry.number}: {problem}; nothing was "
                    "charged"
                ) from None

    def _read(self, entry: Entry) -> None:
        """Read the next entry; ValueError, with the reason, if it contradicts those before."""
        if entry.number != self.last + 1 and entry.kind != "begin":
            raise ValueError(f"entries {self.last + 1} to {entry.number - 1} are missing")
        if entry.kind not in _COLUMNS:
            raise ValueError(f"it is of kind {entry.kind!r}, which this version does not know")
        columns = unpack(entry.data, *_COLUMNS[entry.kind])
        getattr(self, f"_{entry.kind}")(*columns)
        if entry.kind == "begin":
            self.asked = bool(entry.nano)
        elif entry.kind == "charge":
            self.asked = True
            self._bytes += len(entry.data)
        self.last = entry.number
        self._entries += 1

    def _join(
        self,
        limits: NDArray[np.int64],
        spent: NDArray[np.int64],
        radii: NDArray[np.float64],
        marks: NDArray[np.uint8],
    ) -> None:
        if not len(limits) == len(spent) == len(radii) == len(marks) / _MARK:
            raise ValueError("its columns are of different lengths")
        if ((limits < spent) | (spent < 0) | (limits > _MOST)).any():
            raise ValueError("purses have spent more than their limits")
        different, which = np.unique(radii, return_inverse=True)
        whose = marks.view(f"S{_MARK}")
        for number, mark in enumerate(whose.tolist(), len(self.limits)):
            if mark:
                self._numbers.setdefault(mark, number)
        self.which = np.concatenate([self.which, self._number_classes(different)[which]])
        self.limits, self.spent = np.concatenate([self.limits, limits]), np.concatenate([self.spent, spent])
        self.marks = np.concatenate([self.marks, whose])

    def _charge(
        self, prices: NDArray[np.int64], times: NDArray[Any], who: NDArray[np.uint32] | None = None
    ) -> None:
        number = len(self.limits)
        if len(times) != (number if who is None else len(who)):
            raise ValueError(f"{len(times)} multipliers do not fit")
        if who is not None and ((who >= number).any() or (who[1:] <= who[:-1]).any()):
            raise ValueError("it charges persons that there are not, or one of them twice")
        if len(prices) not in (1, len(self.classes)) or (prices < 0).any() or (prices > _MOST).any():
            raise ValueError(f"{len(prices)} prices do not fit")
        some: Any = slice(None) if who is None else who
        each = prices if len(prices) == 1 else prices[self.which[some]]
        often = times.astype(np.int64)
        if (often < 0).any():
            raise ValueError("multipliers are too large")
        if not can_pay(self.limits[some] - self.spent[some], often, each).all():
            raise ValueError("purses would spend more than their limits")
        self.spent[some] += often * each


_NONE = float("nan")


def can_pay(
    left: NDArray[np.int64], times: NDArray[np.int64], prices: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether each remainder pays; by division, since a product might overflow."""
    return np.asarray((times <= left // np.maximum(prices, 1)) | (prices == 0))


class Purses:
    """Limits of persons, and what each has spent, in one account of a ledger.

    Persons are numbers 0, 1, 2, … in the order in which they join. A limit never changes, and a spent amount stays
    spent. Amounts are whole billionths.

    Parameters
    ----------
    ledger : in which they are. name : of the account. unit : "epsilon" or "rho", in which all purses are kept.

    Raises InputError if the account was opened as something else.

    >>> import tempfile, deltahist as dh
    >>> folder = tempfile.TemporaryDirectory()
    >>> purses = Purses(dh.Ledger(f"{folder.name}/city.ledger"), "people")
    >>> with purses.turn() as turn:
    ...     turn.join([10**9, 10**8])
    range(0, 2)
    >>> with purses.turn() as turn:
    ...     turn.charge([1, 2], price=10**8).tolist()
    [True, False]
    >>> with purses.turn() as turn:
    ...     turn.spent.tolist()
    [100000000, 0]
    >>> folder.cleanup()
    """

    def __init__(self, ledger: Ledger, name: str, unit: str = "epsilon") -> None:
        self.ledger, self.name, self.unit = ledger, name, one_of(("epsilon", "rho"), unit=unit)
        self._rule = {"kind": "purses", "unit": unit}
        self._log = PurseLog()
        with self.ledger.transaction() as connection:
            open_account(connection, name, self._rule)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """Hold all purses, alone: changes are durable when the block ends, and undone if it raises.

        Raises DamagedFile if the log contradicts itself.
        """
        try:
            with self.ledger.transaction() as connection:
                accounts = Accounts(connection)
                open_account(connection, self.name, self._rule)
                self._read(accounts.entries(self.name, self._log.last))
                yield Turn(accounts, self.name, self._log)
        except BaseException:
            self._log = PurseLog()
            raise

    def _read(self, entries: Sequence[Entry]) -> None:
        """Read entries on. If that breaks off, nothing is known, and all is read again."""
        log, self._log = self._log, PurseLog()
        log.read(self.name, entries)
        self._log = log


class Turn:
    """Purses within one transaction of their ledger.

    Attributes
    ----------
    accounts : of the transaction, for what else belongs to it.
    limits, spent : (m,) billionths, read-only, as they were when the turn began. marks : (m,) of whom they are.
    classes : (c,) the different radii that there are; NaN is none. which : (m,) whose radius is which.
    asked : whether there was a charge before, to whomever.
    """

    def __init__(self, accounts: Accounts, name: str, log: PurseLog) -> None:
        self.accounts, self._name, self._log = accounts, name, log
        self.entered: list[Entry] = []
        self.limits, self.spent, self.which = log.limits.view(), log.spent.view(), log.which.view()
        self.marks = log.marks.view()
        for column in (self.limits, self.spent, self.which, self.marks):
            column.flags.writeable = False
        self.classes = np.array(list(log.classes), dtype=np.float64)
        self.asked = log.asked
        self._joined = 0

    def charge(self, times: ArrayLike, price: int | ArrayLike) -> NDArray[np.bool_]:
        """Charge whoever can pay, and return who could, (m,): the others are not charged.

        A person's charges add up, E₁(o) + E₂(o) (ProPer, sequential composition).

        Parameters
        ----------
        times : (m,) whole numbers, how often each person pays; who pays 0 times takes no part.
        price : billionths of one time, for all or (c,) for each of `classes`.
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
        if (prices < 0).any() or (prices > _MOST).any() or (times < 0).any():
            raise ValueError("prices and multipliers must not be negative, nor prices above 10^9")
        each = prices if len(prices) == 1 else prices[self.which]
        payers = (times > 0) & can_pay(self.limits - self.spent, times, each)
        times = np.where(payers, times, 0)
        small, who = np.min_scalar_type(int(times.max(initial=0))), np.flatnonzero(times)
        # Multipliers of all, or of those who pay with their numbers, whichever is shorter.
        columns = [times.astype(small)]
        if len(who) * (4 + small.itemsize) < len(times) * small.itemsize:
            columns = [times[who].astype(small), who.astype(np.uint32)]
        self._enter("charge", int(prices.max(initial=0)), pack(prices, *columns))
        return payers

    def find(self, marks: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Return the numbers (m,) of the persons with these marks when the turn began; -1 for unknown ones."""
        return self._log.find(marks)

    def join(
        self, limits: ArrayLike, radii: ArrayLike | None = None, marks: NDArray[np.bytes_] | None = None
    ) -> range:
        """Open purses, durably once the turn ends, and return the numbers of their persons.

        Parameters
        ----------
        limits : (m,) billionths. radii : (m,) each person's own radius; NaN, or None for all, is none.
        marks : (m,) 16 bytes each, by which `find` knows the persons again; None if nobody is to be.

        Raises InputError on limits or radii that are negative, too large or of different lengths. Nobody joins then.
        """
        limits = np.asarray(limits, dtype=np.int64)
        radii = np.full(len(limits), np.nan) if radii is None else np.asarray(radii, dtype=np.float64)
        marks = np.zeros(len(limits), f"S{_MARK}") if marks is None else np.asarray(marks, f"S{_MARK}")
        if limits.ndim != 1 or not limits.shape == radii.shape == marks.shape:
            raise InputError(
                f"{limits.shape} limits, {radii.shape} radii, {marks.shape} marks: there must be one for each person"
            )
        if limits.size and not 0 <= limits.min() <= limits.max() <= _MOST:
            raise InputError(
                f"limits go from {limits.min() / NANO:g} to {limits.max() / NANO:g}: they must lie between 0 and 10^9"
            )
        if (radii < 0).any() or np.isinf(radii).any():
            raise InputError(
                f"radius is {radii[(radii < 0) | np.isinf(radii)][0]}: it must be finite, zero or more"
            )
        first = len(self.limits) + self._joined
        self._enter_purses(limits, np.zeros_like(limits), radii, marks)
        self._joined += len(limits)
        return range(first, first + len(limits))

    def _enter_purses(
        self, limits: NDArray[np.int64], spent: NDArray[np.int64], radii: NDArray[np.float64], marks: NDArray[np.bytes_]
    ) -> None:
        for start in range(0, len(limits), _PAGE):
            page = slice(start, start + _PAGE)
            whose = np.ascontiguousarray(marks[page]).view(np.uint8)
            data = pack(limits[page], spent[page], radii[page], whose, compress=True)
            self._enter("join", len(limits[page]), data)

    def _enter(self, kind: str, nano: int, data: bytes) -> None:
        log = self._log
        if not self.entered and log.is_long and kind != "begin":
            # All purses as they are; the entries that led there are dropped.
            self._enter("begin", int(log.asked), pack(self.classes))
            radii = self.classes[self.which] if len(self.classes) else np.zeros(0)
            self._enter_purses(self.limits, self.spent, radii, self.marks)
            self.accounts.drop_entries(self._name, log.last)
        last = self.entered[-1].number if self.entered else log.last
        self.entered.append(Entry(last + 1, kind, nano, data))
        self.accounts.enter(self._name, self.entered[-1])


# ---------------------------------------------------------------------------------- columns as bytes


def pack(*columns: NDArray[Any], compress: bool = False) -> bytes:
    """Pack columns as bytes, behind a line that says what they are.

    >>> pack(np.array([1, 2], dtype=np.uint8))
    b'{"plain": [["uint8", 2]]}\\n\\x01\\x02'
    """
    stated = [[column.dtype.name, len(column)] for column in columns]
    about = json.dumps({"zlib" if compress else "plain": stated}).encode()
    data = b"".join(column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes() for column in columns)
    return about + b"\n" + (zlib.compress(data, 1) if compress else data)


def unpack(data: bytes, kinds: Sequence[str], optional: int = 0) -> list[NDArray[Any]]:
    """Return the columns that were packed, read-only.

    Parameters
    ----------
    data : untrusted. kinds : what each column may be of. optional : how many of the last columns may be missing.

    Raises ValueError, with the reason, unless the bytes are just such columns.

    >>> unpack(pack(np.arange(2), compress=True), ["int64"])
    [array([0, 1])]
    """
    about, _, rest = data.partition(b"\n")
    try:
        ((way, told),) = json.loads(about).items()
        stated = [(str(kind), int(length)) for kind, length in told]
    except (ValueError, TypeError, AttributeError):
        raise ValueError("it does not say what it holds") from None
    known = len(kinds) - optional <= len(stated) <= len(kinds) and all(
        kind in some.split() and length >= 0 for (kind, length), some in zip(stated, kinds, strict=False)
    )
    if not known or way not in ("plain", "zlib"):
        raise ValueError(f"it holds {about[:80].decode()!r}, which this version does not know")
    sizes = [np.dtype(kind).itemsize * length for kind, length in stated]
    if way == "zlib":
        # Never more than is stated: a few bytes can be made to swell to gigabytes.
        with contextlib.suppress(zlib.error):
            rest = zlib.decompressobj().decompress(rest, sum(sizes) + 1)
    if len(rest) != sum(sizes):
        raise ValueError(f"it is {len(rest):,} bytes instead of {sum(sizes):,}")
    ends = np.cumsum([0, *sizes]).tolist()
    return [
        np.frombuffer(rest[start:end], dtype=np.dtype(kind).newbyteorder("<")).astype(kind, copy=False)
        for (kind, _), start, end in zip(stated, ends, ends[1:], strict=False)
    ]
