"""The log of purses: columns as bytes, read forward as untrusted input.

An entry of the log is a "join" that opens purses, a "charge" that takes from some of them, or a "begin". A "begin" says
that the joins behind it repeat all that came before, and (by 1 or 0) whether there was a charge. Whoever has read the
log up to a number needs only what came since.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.accounts.tables import Entry
from deltahist.errors import NANO, DamagedFile

#: Billionths of the largest limit: sums of a limit and a charge that it pays stay within 64 bits.
MOST = 10**9 * NANO
#: A log is begun anew when it holds more than so many entries, or several times what its purses take.
_LONGEST, _LITTLE, _SEVERAL = 1_000, 1 << 20, 2
#: Bytes by which a person is known again, and what a purse takes: limit, sum, class and these.
MARK, _PURSE = 16, 36
#: Columns of a begin: the classes of radius, in order, since charges name them by their numbers.
_BEGIN = ("float64",)
#: Columns of a join: limits, what is spent, radii, and marks.
_JOIN = ("int64", "int64", "float64", "uint8")
#: Columns of a charge: a price for all, or for each class of radius; multipliers; whose they are, if not of everybody.
_CHARGE = ("int64", "uint8 uint16 uint32 uint64", "uint32")


class PurseLog:
    """The purses that a log tells of up to its entry `last`."""

    def __init__(self) -> None:
        self.last = -1
        #: Whether anything was charged, to whomever: public, as questions are.
        self.asked = False
        self._reset(np.zeros(0))

    def _reset(self, classes: NDArray[np.float64]) -> None:
        self._number = self._entries = self._bytes = 0
        kinds = (np.int64, np.int64, np.uint32, f"S{MARK}")
        self._columns: list[NDArray[Any]] = [np.zeros(0, dtype=kind) for kind in kinds]
        self._marked: dict[bytes, int] = {}
        self._looked = 0
        self.classes: dict[float, int] = {}
        self._class_numbers(classes)

    def _class_numbers(self, radii: NDArray[np.float64]) -> NDArray[np.uint32]:
        """Return the numbers of the classes of radii; a radius that is new makes a class."""
        # NaN equals nothing, and must be found again: one object stands for it.
        names = [_NONE if radius != radius else radius for radius in radii.tolist()]
        return np.array([self.classes.setdefault(name, len(self.classes)) for name in names], dtype=np.uint32)

    @property
    def limits(self) -> NDArray[np.int64]:
        """Limits (m,) in billionths; read-only, as are the other columns."""
        return self._view(0)

    @property
    def duplicates(self) -> int:
        """Number of purses whose person has another one."""
        marks = self.marks[self.marks != b""]
        return len(marks) - len(np.unique(marks))

    @property
    def spent(self) -> NDArray[np.int64]:
        """Billionths (m,) that each person has spent."""
        return self._view(1)

    @property
    def which(self) -> NDArray[np.uint32]:
        """Classes of radius (m,)."""
        return self._view(2)

    @property
    def marks(self) -> NDArray[np.bytes_]:
        """Marks (m,) by which persons are known again; empty for others."""
        return self._view(3)

    def find(self, marks: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Return the numbers (m,) of the persons with these marks; -1 for unknown ones."""
        for number, mark in enumerate(self.marks[self._looked :].tolist(), self._looked):
            if mark:
                self._marked.setdefault(mark, number)
        self._looked = self._number
        return np.array([self._marked.get(mark, -1) for mark in marks.tolist()], dtype=np.int64)

    @property
    def is_long(self) -> bool:
        """Whether the log is to be begun anew."""
        return self._entries > _LONGEST or self._bytes > max(_LITTLE, _SEVERAL * _PURSE * self._number)

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
        if entry.kind == "begin":
            self._reset(*unpack(entry.data, _BEGIN))
            self.asked = bool(entry.nano)
        elif entry.kind == "join":
            self._join(*unpack(entry.data, _JOIN))
        elif entry.kind == "charge":
            self._charge(*unpack(entry.data, _CHARGE, optional=1))
            self.asked = True
        else:
            raise ValueError(f"it is of kind {entry.kind!r}, which this version does not know")
        self.last = entry.number
        self._entries += 1
        self._bytes += len(entry.data) if entry.kind == "charge" else 0

    def _join(
        self,
        limits: NDArray[np.int64],
        spent: NDArray[np.int64],
        radii: NDArray[np.float64],
        marks: NDArray[np.uint8],
    ) -> None:
        if not len(limits) == len(spent) == len(radii) == len(marks) / MARK:
            raise ValueError("its columns are of different lengths")
        if ((limits < spent) | (spent < 0) | (limits > MOST)).any():
            raise ValueError("purses have spent more than their limits")
        different, which = np.unique(radii, return_inverse=True)
        numbers = self._class_numbers(different)
        start, self._number = self._number, self._number + len(limits)
        if self._number > len(self._columns[0]):
            room = max(self._number, 2 * len(self._columns[0]))
            self._columns = [
                np.concatenate([c[:start], np.zeros(room - start, c.dtype)]) for c in self._columns
            ]
        for column, values in zip(
            self._columns, (limits, spent, numbers[which], marks.view(f"S{MARK}")), strict=True
        ):
            column[start : self._number] = values

    def _charge(
        self, prices: NDArray[np.int64], times: NDArray[Any], who: NDArray[np.uint32] | None = None
    ) -> None:
        if len(times) != (self._number if who is None else len(who)):
            raise ValueError(f"{len(times)} multipliers do not fit")
        if who is not None and ((who >= self._number).any() or (who[1:] <= who[:-1]).any()):
            raise ValueError("it charges persons that there are not, or one of them twice")
        if len(prices) not in (1, len(self.classes)) or (prices < 0).any() or (prices > MOST).any():
            raise ValueError(f"{len(prices)} prices do not fit")
        some: Any = slice(None) if who is None else who
        each = prices if len(prices) == 1 else prices[self.which[some]]
        often = times.astype(np.int64)
        if (often < 0).any():
            raise ValueError("multipliers are too large")
        if not can_pay(self.limits[some] - self.spent[some], often, each).all():
            raise ValueError("purses would spend more than their limits")
        spent: NDArray[np.int64] = self._columns[1][: self._number]
        spent[some] += often * each

    def _view(self, column: int) -> NDArray[Any]:
        view = self._columns[column][: self._number]
        view.flags.writeable = False
        return view


_NONE = float("nan")


def can_pay(
    left: NDArray[np.int64], times: NDArray[np.int64], prices: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether each remainder pays; by division, since a product might overflow."""
    return np.asarray((times <= left // np.maximum(prices, 1)) | (prices == 0))


def pack_purses(
    limits: NDArray[np.int64], spent: NDArray[np.int64], radii: NDArray[np.float64], marks: NDArray[np.bytes_]
) -> bytes:
    """Pack the columns of a join, which repeat themselves."""
    return pack(limits, spent, radii, np.ascontiguousarray(marks).view(np.uint8), compress=True)


def pack_charge(times: NDArray[np.int64], prices: NDArray[np.int64]) -> bytes:
    """Pack a charge: multipliers of all, or of those who pay with their numbers, whichever is shorter."""
    small = np.min_scalar_type(int(times.max(initial=0)))
    who = np.flatnonzero(times)
    if len(who) * (4 + small.itemsize) < len(times) * small.itemsize:
        return pack(prices, times[who].astype(small), who.astype(np.uint32))
    return pack(prices, times.astype(small))


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
