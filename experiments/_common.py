"""Code that all scripts share: the two options, printed tables, CSV and PNG files."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The main figures of a script, by name.
Found = dict[str, Any]
Row = Mapping[str, Any]

BLUE, ORANGE, GREEN, RED, GREY = "#1f5fa8", "#e07b00", "#2a8a3e", "#b3261e", "#6f6f6f"


def parser_of(what: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every script has. The first line of `what` is the description."""
    parser = argparse.ArgumentParser(description=(what or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="run a reduced version that takes a few seconds")
    parser.add_argument(
        "--out", type=_folder, default="experiments/out", metavar="DIR", help="folder for CSV and PNG files"
    )
    return parser


def _folder(name: str) -> Path:
    out = Path(name)
    out.mkdir(parents=True, exist_ok=True)
    return out


def command(run: Callable[[Path, bool], Found], what: str | None, arguments: Sequence[str] | None) -> None:
    """Run one script from the command line and print its main figures."""
    chosen = parser_of(what).parse_args(arguments)
    print_found(run(chosen.out, chosen.small))
    print(f"CSV and PNG files are in {chosen.out}")


def print_found(found: Found) -> None:
    """Print the main figures of a script, one per line."""
    print()
    for name, value in found.items():
        print(f"{name}: {text_of(value)}")


def write_csv(file: Path, rows: Sequence[Row]) -> None:
    """Write rows with the same columns as CSV. Numbers keep all their digits."""
    with file.open("w", newline="", encoding="utf-8") as target:
        writer = csv.DictWriter(target, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def print_table(rows: Sequence[Row]) -> None:
    """Print rows with the same columns as an aligned table."""
    table = [list(rows[0]), *([text_of(v) for v in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_markdown(rows: Sequence[Row]) -> None:
    """Print rows with the same columns as a Markdown table, ready to paste into a page."""
    for line in (rows[0], ["---"] * len(rows[0]), *(map(text_of, row.values()) for row in rows)):
        print(f"| {' | '.join(line)} |")


def text_of(value: Any) -> str:
    """Format a number with at least five significant digits, and anything else unchanged."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.5g}"


def figure(width: float, height: float) -> Figure:
    """Return an empty figure with its size in inches, which needs no window system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    out = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(out)
    return out


def save(drawn: Figure, file: Path) -> None:
    """Write the figure as PNG. Identical runs write identical bytes."""
    drawn.savefig(file, dpi=130, metadata={"Software": None})
