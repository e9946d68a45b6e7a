"""Planted bugs, one small change each, over everything between a raw row and a released number.

They stand in the TOML files beside this one, by the file of the package that they change. Each must be caught by the
quick tests. `tests` are those that should catch it, tried first; where they do not, the runner goes on with all
others. A mutant that may be missed says why it is `harmless`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One change of one file of the package.

    Parameters
    ----------
    file : below `deltahist/`. name : what is wrong then.
    old : a passage that stands there once. new : what takes its place.
    tests : files or folders below `tests/` that are tried first, the likeliest one first.
    harmless : why nobody is harmed if it is missed; empty where it must be caught.
    """

    file: str
    name: str
    old: str
    new: str
    tests: tuple[str, ...]
    harmless: str = ""


def _read(path: Path) -> Iterator[Mutant]:
    for file, section in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for entry in section["mutants"]:
            own = entry.pop("tests", [])
            yield Mutant(file, tests=(*own, *section["tests"]), **entry)


MUTANTS = tuple(m for path in sorted(Path(__file__).parent.glob("*.toml")) for m in _read(path))
