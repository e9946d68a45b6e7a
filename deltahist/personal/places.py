"""Where records are: which columns say so, in which order, and in which reference system they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltahist.budgets.purses import Turn
from deltahist.domain.operations import read_crs
from deltahist.errors import InputError

#: Starts the names of facts of an account, one for each table.
_FACT = "place "


@dataclass(frozen=True)
class Place:
    """Columns that say where a record is; a radius is measured on these, as they are read here.

    Parameters
    ----------
    columns : x, or x and y, in this order; () if no column says where.
    crs : of the columns, anything that pyproj reads; None if they are in the units of maps without a CRS.

    Raises
    ------
    InputError
        On more than two columns, one that repeats, or a CRS that is not known or has no columns.

    >>> str(Place(("lon", "lat"), "EPSG:4326"))
    "['lon', 'lat'] in EPSG:4326"
    """

    columns: Sequence[str]
    crs: str | None = None

    def __post_init__(self) -> None:
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if len(columns) > 2 or len(set(columns)) < len(columns):
            raise InputError(
                f"place is {list(columns)}: it must be the column of x, or those of x and y, or none"
            )
        if self.crs is not None and len(columns) < 2:
            raise InputError(
                f"crs is {self.crs!r} of the places {list(columns)}: it needs a column of x and one of y"
            )
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "crs", None if self.crs is None else _canonical(self.crs))

    def __str__(self) -> str:
        return _said(self.columns, self.crs)

    def check(self, axes: Sequence[str], crs: str | None) -> None:
        """Raise InputError unless columns of the place are read as they are here.

        Parameters
        ----------
        axes : of the columns that are read, all of them columns of the place; one of two has no CRS.
        crs : in which they are read.
        """
        if [name for name in self.columns if name in axes] != list(axes) or not _alike(self.crs, crs):
            raise InputError(
                f"the map reads the places as {_said(axes, crs)}, and these people's radii are about {self}: a move "
                "would be charged by another length than it has; read them alike (x before y, crs= of the columns)"
            )

    def keep(self, turn: Turn, account: str, table: str) -> None:
        """Keep the place with the account: who took part by one answer would be told by another.

        It may be said anew until a question is asked. Who has paid, or has a radius, makes no difference: an error
        that depended on them would tell of their records.

        Raises
        ------
        InputError
            If another place was said before, or the radii of these people are in other units in another table.
        """
        said = {"columns": list(self.columns), "crs": self.crs}
        all_kept = turn.accounts.facts(account, _FACT)
        kept = all_kept.pop(_FACT + table, None)
        if kept == said:
            return
        if kept is not None:
            was = Place(**kept)
            if was.columns == self.columns and _alike(was.crs, self.crs):
                return
            if turn.asked:
                raise InputError(
                    f"place is {self} in {table!r}, and was {was} before: a radius is about the columns that were said "
                    "when the first question was asked; say these"
                )
        for other, place in all_kept.items():
            if self.columns and place["columns"] and (self.crs is None) != (place["crs"] is None):
                raise InputError(
                    f"place is {self} in {table!r}, and {Place(**place)} in {other.removeprefix(_FACT)!r}: a radius "
                    "would be metres in one and units of the map in the other; say the CRS of both (crs=), or of none"
                )
        turn.accounts.store(account, _FACT + table, said)


def _canonical(crs: Any) -> str:
    """A CRS in one way of writing: its code, or else all that makes it."""
    read = read_crs(crs)
    code = read.to_authority(min_confidence=100)
    return read.to_wkt() if code is None else ":".join(code)


def _alike(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    return bool(read_crs(one).equals(read_crs(other), ignore_axis_order=True))


def _said(columns: Sequence[str], crs: str | None) -> str:
    unit = (
        "units of the map" if crs is None else crs if len(crs) < 80 else f"{read_crs(crs).name} ({crs[:60]}…)"
    )
    return f"{list(columns)} in {unit}"
