"""The columns that say where records are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltahist.errors import InputError
from deltahist.personal.purses import Turn
from deltahist.space.crs import read_crs

#: Starts the names of facts about places, one for each table.
_PLACE = "place "


@dataclass(frozen=True)
class Place:
    """Columns that say where a record is, in an order and a reference system; radii are measured on these.

    They are x, or x and y; () if no column says where. The CRS is None if they are in the units of maps without one.

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
        if self.crs is not None:
            read = read_crs(self.crs)
            code = read.to_authority(min_confidence=100)
            object.__setattr__(self, "crs", read.to_wkt() if code is None else ":".join(code))

    def __str__(self) -> str:
        return f"{list(self.columns)} in {'units of the map' if self.crs is None else self.crs[:80]}"

    def agrees(self, crs: str | None) -> bool:
        """Return whether coordinates in a reference system are these numbers, but for their order."""
        if self.crs is None or crs is None:
            return self.crs is crs
        return bool(read_crs(self.crs).equals(read_crs(crs), ignore_axis_order=True))

    def check(self, axes: Sequence[str], crs: str | None) -> None:
        """Raise InputError unless a map reads columns of the place in this order and CRS."""
        if [name for name in self.columns if name in axes] != list(axes) or not self.agrees(crs):
            given = f"{list(axes)} in {'units of the map' if crs is None else crs[:80]}"
            raise InputError(
                f"the map reads the places as {given}, and these people's radii are about {self}: a move would be "
                "charged by another length than it has; read them alike (x before y, crs= of the columns)"
            )

    def keep(self, turn: Turn, account: str, table: str) -> None:
        """Keep the place with the account, for all questions: one answer would tell who took part in another.

        Another place may be given until a question is asked. Who has paid, or has a radius, makes no difference: an
        error that depended on them would tell of their records. Raises InputError if another place was kept before, or
        the radii of these people are in other units in another table.
        """
        given = {"columns": list(self.columns), "crs": self.crs}
        all_kept = turn.accounts.facts(account, _PLACE)
        kept = all_kept.pop(_PLACE + table, None)
        if kept == given or (kept and kept["columns"] == given["columns"] and self.agrees(kept["crs"])):
            return
        if kept is not None and turn.asked:
            raise InputError(
                f"place is {self} in {table!r}, and was {Place(**kept)} before: a radius is about the columns that "
                "were said when the first question was asked; say these"
            )
        for other, place in all_kept.items():
            if self.columns and place["columns"] and (self.crs is None) != (place["crs"] is None):
                raise InputError(
                    f"place is {self} in {table!r}, and {Place(**place)} in {other.removeprefix(_PLACE)!r}: a radius "
                    "would be metres in one and units of the map in the other; say the CRS of both (crs=), or of none"
                )
        turn.accounts.store(account, _PLACE + table, given)
