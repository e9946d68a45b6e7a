"""Planted bugs, one small change each, over everything between a raw row and a released number.

They stand in the TOML files beside this one, by topic. Each must be caught by the quick tests, or by those on Spark
that it names. `tests` are those that should catch it, tried first; where they do not, the runner goes on with all
others. A mutant that may be missed says why it is `harmless`. A mutant is anchored at a function, a class or a constant
of the package, by its name: that may move to another file, and be laid out anew, without a change here.
"""

from __future__ import annotations

import ast
import functools
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One change of one file of the package.

    Parameters
    ----------
    topic : the file that it is about, when it was written. name : what is wrong then.
    at : where: the name of a function, a class or a constant ("Class.method"), or a file below `deltahist/`.
    old : a passage that stands there once, however its lines are broken. new : what takes its place.
    tests : files or folders below `tests/`, or single tests, that are tried first, the likeliest one first.
    harmless : why nobody is harmed if it is missed; empty where it must be caught.
    """

    topic: str
    name: str
    at: str
    old: str
    new: str
    tests: tuple[str, ...]
    harmless: str = ""


def planted(mutant: Mutant, package: Path) -> tuple[Path, str]:
    """Return the file that a mutant changes, below the package, and what stands in the file then.

    Raises LookupError unless the passage stands once at the mutant's anchor.
    """
    file, before, _, changed, behind = passage(mutant, package)
    return file, before + changed + behind


def passage(mutant: Mutant, package: Path) -> tuple[Path, str, str, str, str]:
    """Return the file of a mutant, and its text: before the anchor, the anchor as it is and as planted, and behind it.

    Raises LookupError unless the passage stands once at the anchor.
    """
    found = []
    for file, first, last in _anchors(package)[mutant.at]:
        lines = _lines(package / file)
        before, there, behind = ("".join(part) for part in (lines[: first - 1], lines[first - 1 : last], lines[last:]))
        found += [(file, before, there, changed, behind) for changed in _replaced(there, mutant)]
    if len(found) != 1:
        raise LookupError(f"{mutant.name}: its passage must stand once in {mutant.at}, and does {len(found)} times")
    return found[0]


@functools.cache
def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines(keepends=True)


@functools.cache
def _anchors(package: Path) -> dict[str, list[tuple[Path, int, int]]]:
    """Return files and lines (first, and last) of all that has a name, and of files."""
    out: dict[str, list[tuple[Path, int, int]]] = defaultdict(list)
    for file in sorted(package.rglob("*.py")):
        below, text = file.relative_to(package), file.read_text(encoding="utf-8")
        out[below.as_posix()].append((below, 1, text.count("\n") + 1))
        for name, first, last in _named(ast.parse(text).body, ""):
            out[name].append((below, first, last))
    return out


def _named(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, int, int]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names = [ast.unparse(each) for each in (node.targets if isinstance(node, ast.Assign) else [node.target])]
        else:
            continue
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        for name in names:
            yield prefix + name, first, node.end_lineno or first
        if isinstance(node, ast.ClassDef):
            yield from _named(node.body, f"{prefix}{node.name}.")


def _replaced(source: str, mutant: Mutant) -> Iterator[str]:
    """Yield the source with each passage replaced, however blanks and line ends are set."""
    (kept, text), passage = _letters(source), "".join(mutant.old.split())
    place = text.find(passage)
    while place >= 0:
        begin, end = kept[place], kept[place + len(passage) - 1] + 1
        yield source[:begin] + _moved(mutant, source, begin, end) + source[end:]
        place = text.find(passage, place + 1)


@functools.cache
def _letters(source: str) -> tuple[list[int], str]:
    kept = [i for i, letter in enumerate(source) if not letter.isspace()]
    return kept, "".join(source.split())


def _moved(mutant: Mutant, source: str, begin: int, end: int) -> str:
    """Return the new passage, its lines as far in as the old one's are now."""
    said, there = mutant.old.strip("\n").splitlines(), source[source.rfind("\n", 0, begin) + 1 : end].splitlines()
    further = 0
    if len(said) > 1 and len(said) == len(there):
        further = _depth(there[-1]) - _depth(said[-1])
    elif said[0][:1].isspace():
        further = _depth(there[0]) - _depth(said[0])
    head, *rest = mutant.new.strip().split("\n")
    if not further or not rest:
        return "\n".join([head, *rest])
    shifted = [" " * (_depth(line) + further) + line.lstrip() if line.strip() else line for line in rest]
    return "\n".join([head, *shifted])


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _read(path: Path) -> Iterator[Mutant]:
    for topic, section in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for entry in section["mutants"]:
            own = entry.pop("tests", [])
            yield Mutant(topic, tests=(*own, *section["tests"]), **entry)


MUTANTS = tuple(m for path in sorted(Path(__file__).parent.glob("*.toml")) for m in _read(path))
