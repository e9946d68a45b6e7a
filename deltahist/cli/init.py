"""`deltahist init`: five questions, whose answers are the choices that all commands share in a folder."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer import Context

from deltahist.cli import console
from deltahist.cli.groups import AccountOptions, Spending
from deltahist.cli.maps import PLAIN, Coordinates
from deltahist.cli.options import amount, argument, corners, flag, length, option, whole_number
from deltahist.cli.project import FILE, check_password
from deltahist.errors import InputError

#: Names of columns that are proposed, the likeliest first.
_NAMES = {
    "x": ("lon", "lng", "long", "longitude", "x", "easting"),
    "y": ("lat", "latitude", "y", "northing"),
    "user": ("user", "user_id", "userid", "uid", "id", "person"),
    "time": ("time", "when", "timestamp", "datetime", "date", "day", "t"),
}
#: An answer that says that there is no such thing.
_NOTHING = "-"
#: Lines above the keys of the file.
_WORDS = {
    "x": "# Columns of the points.",
    "user": "# Whole users are protected, of each of whom so many points are kept.",
    "time": "# Column of times, for `deltahist stream`.",
    "crs": "# The map. Its bounds are published, and were not taken from the points.",
    "delta": "# Within this distance everyone is hidden with the full guarantee.",
    "epsilon": "# What a release costs.",
    "rho": "# What a release costs.",
    "ledger": "# The account that pays for all of them; --limit is all that may ever be spent of it.",
    "regions": "# What is asked, drawn and planned for.",
}


@dataclass(frozen=True, kw_only=True)
class _Choices(Coordinates, Spending, AccountOptions):
    """Answers to the questions."""

    user: str | None = option("COL", "Column of user names: whole users are protected.")
    max_per_user: int | None = option("K", "Points kept of one user.", whole_number)
    time: str | None = option("COL", "Column of times.")
    bounds: Any = option("W,S,E,N", "Corners of the map, or a file of regions that has them.")
    delta: Any = option("LENGTH", "δ: within this distance everyone is hidden with the full guarantee.", length)
    regions: Path | None = option("FILE", "Polygons that will be asked.")


def init(
    context: Context,
    *,
    source: str | None = argument("INPUT", "The file of points, of which only the header is read.", default=None),
    choices: _Choices,
    overwrite: bool = flag("Replace deltahist.toml if there is one."),
) -> None:
    """Ask five questions, and write deltahist.toml: the choices that all commands take in this folder.

    Each question that an option answers is left out; other answers are lines of standard input, an empty one for what
    stands in brackets, and - for nothing.

    \b
    Examples:
      deltahist init
      deltahist init visits.csv --bounds -74.3,40.45,-73.6,40.95 --delta 500m --epsilon 1 < /dev/null
    """
    console.check_target(FILE, replace=overwrite, option="deltahist init writes deltahist.toml; --out")
    del choices  # checked; what was typed is written
    typed = {name: value for name, value in context.meta["typed"].items() if value != ""}
    if "limit" in typed:
        typed["limit"] = typed["limit"][-1]
    ask = _Asking(typed)
    _ask_points(ask, source)
    _ask_map(ask)
    from deltahist.space.domain import read_length

    degrees = ask.found.get("project") == "auto" or ask.found["crs"] != PLAIN
    ask.title(3, "Who is protected within which distance? 500m hides a visit, 1km a home, 5km a trip.")
    ask("delta", "δ", "500m" if degrees else None, read_length)
    if "user" in ask.found:
        ask("max_per_user", f"Points that are kept of each {ask.found['user']}, protected together", "5", whole_number)
    _ask_budget(ask)
    ask.title(5, "Which regions will be asked?")
    ask("regions", "A file of polygons", ask.bounds_of or _NOTHING, _existing)
    console.put(_render(ask.found), FILE)
    print(f"wrote {FILE}: look at it, then try")
    print(f"  deltahist publish {ask.source or 'INPUT'} --out city.parquet --dry-run")


class _Asking:
    """Questions with their answers so far, by the names of options."""

    def __init__(self, typed: dict[str, Any]) -> None:
        self.typed = typed
        self.found: dict[str, str] = {}
        self.source: str | None = None
        #: The file whose bounds are those of the map.
        self.bounds_of: str | None = None

    @staticmethod
    def title(number: int, text: str) -> None:
        """Tell the question."""
        console.note(f"{number}/5  {text}")

    def __call__(
        self, name: str, text: str, usual: str | None, read: Callable[[str, str], Any] | None = None
    ) -> str | None:
        """Return the option, or the answer to a question, and keep it; None for nothing.

        A wrong answer is asked again on a terminal, and refused elsewhere.
        """
        said = f"--{name.replace('_', '-')}"
        while True:
            answer, ended = self.typed.get(name), False
            if answer is None:
                print(f"     {text}{f' [{usual}]' if usual else ''}: ", end="", file=sys.stderr, flush=True)
                line = sys.stdin.readline()
                ended = not line
                if not sys.stdin.isatty():
                    print(line.rstrip("\n"), file=sys.stderr)
                answer = line.strip() or usual
            try:
                if answer is None:
                    raise InputError(f"{said} is missing: {text}")
                if answer == _NOTHING:
                    return None
                if read is not None:
                    read(answer, said)
                self.found[name] = answer
                return answer
            except InputError as problem:
                if ended or name in self.typed or not sys.stdin.isatty():
                    raise
                console.note(f"     {problem}")


def _existing(text: str, option: str) -> Path:
    """Read the name of a file that exists."""
    if not Path(text).is_file():
        raise InputError(f"{option} is {text!r}: there is no such file")
    return Path(text)


def _ask_points(ask: _Asking, source: str | None) -> None:
    """Ask for the file of points and its columns; no row is read."""
    ask.title(1, "Which points? Only the header of the file is read.")
    ask.typed |= {} if source is None else {"source": source}
    columns: list[str] = []

    def read(text: str, option: str) -> None:
        """Read the names of the columns."""
        from deltahist.counting.files import list_columns

        columns[:] = list_columns(Path(text))
        console.note(f"     its columns: {', '.join(columns) or 'none with names (count them from 0)'}")

    ask.source = ask("source", "A table, such as visits.csv", _NOTHING, read)
    ask.found.pop("source", None)
    def check(text: str, option: str) -> None:
        """Check that there is such a column; others are numbers from 0."""
        if columns and text not in columns and not text.isdigit():
            raise InputError(f"{option} is {text!r}: the columns are {', '.join(columns)}")

    known = {column.lower(): column for column in reversed(columns)}
    for name, text in (("x", "x or longitude"), ("y", "y or latitude"), ("user", "users"), ("time", "times")):
        usual = next((known[each] for each in _NAMES[name] if each in known), _NOTHING)
        ask(name, f"Column of {text}", usual, check)


def _ask_map(ask: _Asking) -> None:
    """Ask for the CRS and the bounds, which are public: the points are not looked at."""
    ask.title(2, "Which map? Its bounds are published: choose them by the place, never by the points.")
    degrees = str(ask.found.get("x", "")).lower() in _NAMES["x"][:4]
    crs = ask("crs", "CRS of the points; none for a plane", "EPSG:4326" if degrees else PLAIN) or PLAIN
    project = ask.typed.get("project")
    if project is None and crs != PLAIN:
        from deltahist.space.crs import read_crs

        project = "auto" if read_crs(crs, "--crs").is_geographic else None
    ask.found |= {"crs": crs} if project is None else {"crs": crs, "project": project}
    on_map = crs if project in (None, "auto") else project

    def read(text: str, option: str) -> None:
        """Read corners, or a file that has them, and check that they make a map."""
        box = text
        if Path(text).is_file():
            ask.bounds_of, box = text, _bounds_of(text, on_map)
        ask.found["bounds"] = box
        said = crs if crs != PLAIN or "crs" in ask.typed else None  # degrees are to be declared
        columns = {"x": ask.found.get("x", "x"), "y": ask.found.get("y")}
        Coordinates(**columns, crs=said, project=project).on_map(corners(box, option))

    box = ask("bounds", "Corners W,S,E,N, or a file of regions that has them", None, read)
    if box is None:
        raise InputError("--bounds is missing: corners of the map, W,S,E,N")
    if ask.bounds_of is not None:
        ask.found["bounds"] = _bounds_of(ask.bounds_of, on_map)


def _bounds_of(file: str, crs: str) -> str:
    """Return the bounds of regions in a CRS, extended to two digits, or to hundreds of its unit."""
    import shapely

    from deltahist.space.crs import read_crs
    from deltahist.space.domain import Domain
    from deltahist.space.geometries import read_shapes

    shapes, own = read_shapes(file, Domain((0, 0, 1, 1), (1, 1), "EPSG:3857"), "--bounds")
    box: Any = shapely.total_bounds(shapes).tolist()
    degrees = False
    if crs != PLAIN:
        from pyproj import Transformer

        there = read_crs(crs, "--crs")
        degrees = there.is_geographic
        box = box if own is None else Transformer.from_crs(own, there, always_xy=True).transform_bounds(*box)
    step = 100 if degrees else 0.01
    steps = [round(value * step, 6) for value in box]
    out = [(math.floor if place < 2 else math.ceil)(value) / step for place, value in enumerate(steps)]
    return ",".join(f"{value:.10g}" for value in out)


def _ask_budget(ask: _Asking) -> None:
    """Ask for the budget of a release, and the account that pays."""
    ask.title(4, "How much does a release cost, and which account pays?")
    unit = "rho" if "rho" in ask.typed else "epsilon"
    ask(unit, "ε of a release", "1", amount)
    if ask("ledger", "Ledger of all that is published", "deltahist.ledger") is None:
        return
    check_password("--ledger", ask.found["ledger"])
    ask("account", "Its account for these people", Path.cwd().name or "people")
    ask("limit", "All that may ever be spent of it", f"{4 * float(ask.found[unit]):g}", amount)


def _render(found: dict[str, str]) -> str:
    """Return the text of the file, with a line of words above what belongs together."""
    order = [
        *("x", "y", "user", "max_per_user", "time", "crs", "project", "bounds", "delta"),
        *("epsilon", "rho", "ledger", "account", "limit", "regions"),
    ]
    lines = [
        "# Choices of all `deltahist` commands in this folder; public, since releases name this file by its SHA-256.",
        "# Whatever is typed takes the place of what stands here.",
    ]
    for name in order:
        if name in found:
            lines += ["", _WORDS[name]] if name in _WORDS else []
            lines.append(f"{name.replace('_', '-')} = {json.dumps(found[name], ensure_ascii=False)}")
    return "\n".join(lines)
