"""Public tables of edges, distances and pairs, as text files have them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltahist.errors import InputError
from deltahist.networks.network import Network

if TYPE_CHECKING:
    import pandas as pd

#: What the first line of a table of pairs is called, where it is a heading.
_HEADINGS = frozenset({
    "source", "target", "from", "to", "src", "dst", "owner", "requester", "distance", "user", "friend", "user1",
    "user2", "node1", "node2", "id1", "id2", "weight",
})  # fmt: skip


def read_network(path: str | Path, *, directed: bool = False) -> Network:
    """A network from a text file with an edge on each line, as `read_pairs` reads it.

    Raises InputError if it cannot be read, or an edge lacks a user.
    """
    return Network.from_edges(read_pairs(path), directed=directed)


def read_pairs(path: str | Path, columns: int = 2) -> pd.DataFrame:
    """The first columns of a table of text; commas, semicolons, tabs or spaces separate them, remarks begin with #.

    The first line is left out if it is a heading: words such as source and target, from and to, owner and requester.

    Raises InputError if the file is missing, empty or unreadable, or a line has too few columns.
    """
    import pandas as pd

    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise InputError(f"file {str(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"file {str(path)!r} cannot be read as text: {problem}") from None
    numbered = [
        (number, line) for number, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"
    ]
    if not numbered:
        raise InputError(f"file {str(path)!r} is empty: it must have a line for each pair of users")
    mark = next((mark for mark in ",;\t" if mark in numbered[0][1]), None)
    rows = [[part.strip().strip('"') for part in line.split(mark)][:columns] for _, line in numbered]
    if {word.lower() for word in rows[0]} <= _HEADINGS:
        rows, numbered = rows[1:], numbered[1:]
    for (number, line), row in zip(numbered, rows, strict=True):
        if len(row) < columns or not all(row):
            raise InputError(
                f"line {number:,} of {str(path)!r} is {line[:60]!r}: it must have {columns} columns, as the first line "
                "separates them"
            )
    return pd.DataFrame(rows, columns=range(columns), dtype=object)
