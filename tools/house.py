"""Print figures on the package's size, style and imports: `python tools/house.py`."""

from __future__ import annotations

import ast
import collections
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

HOUSE = Path(__file__).parent.parent / "deltahist"
TESTS = HOUSE.parent / "tests"
#: User tasks, and the number of files each may run through.
TRIPS = {
    "a CSV published by a named strategy (cells)": ('publish("identity")', 20),
    "a CSV published by a named strategy that is tuned (flow)": ('publish("flow")', 0),
    "a CSV published by the strategy that ranks first (auto)": ('publish("auto")', 0),
    "a box from a file": ('dh.answer(dh.load(folder + "/release.parquet"), [[0, 0, 300, 300]])', 12),
    "a statement from a file": ('dh.write_statement(dh.load(folder + "/release.parquet"))', 0),
}
_TRIP = """
import importlib, pkgutil, sys, tempfile
import numpy as np, deltahist as dh
for module in pkgutil.walk_packages(dh.__path__, "deltahist."):  # bodies of modules do not count
    module.name.endswith("__main__") or importlib.import_module(module.name)

def publish(strategy):
    domain = dh.Domain((0, 0, 1000, 1000), (20, 20))
    counts = dh.count_file(folder + "/points.csv", domain, x="x", y="y").counts
    dh.publish(counts, dh.Neighbourhood(domain, 100), strategy, epsilon=1).save(folder + "/release.parquet")

with tempfile.TemporaryDirectory() as folder:
    points = np.random.default_rng(1).uniform(0, 1000, (2000, 2))
    np.savetxt(folder + "/points.csv", points, delimiter=",", header="x,y", comments="")
    publish("flow")
    files = set()
    sys.setprofile(lambda frame, event, _: event == "call" and files.add(frame.f_code.co_filename))
    {}
    sys.setprofile(None)
print(sum("/deltahist/" in name for name in files))
"""


def main() -> None:
    """Print lines per room, duplicates, Protocols, circular imports between rooms, and files per task."""
    files = sorted(HOUSE.rglob("*.py"))
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    rooms: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for file in files:
        rooms[room_of(file)].update(kinds_of_lines(file, trees[file]))
        rooms[room_of(file)]["files"] += 1
    print_counts(rooms)
    print()
    print_habits({room: [trees[file] for file in files if room_of(file) == room] for room in rooms}, rooms)
    tests = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in TESTS.rglob("*.py"))
    pages = [*HOUSE.parent.glob("*.md"), *(HOUSE.parent / "docs").rglob("*.md")]
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    print(f"\ntests: {tests:,} lines; documentation: {words:,} words in {len(pages)} pages")
    classes = [
        (node.name, file, node) for file in files for node in ast.walk(trees[file]) if isinstance(node, ast.ClassDef)
    ]
    names = collections.Counter(name for name, _, _ in classes if not name.startswith("_"))
    print("public classes of one name:", ", ".join(f"{name} ({n})" for name, n in names.items() if n > 1) or "none")
    protocols = [name for name, _, node in classes if any(ast.unparse(base) == "Protocol" for base in node.bases)]
    print(f"Protocols: {len(protocols)}: {', '.join(protocols)}")
    arrows = {(room_of(file), to) for file in files for to in imports_of(file, trees[file]) if to != room_of(file)}
    both = sorted((a, b) for a, b in arrows if a < b and (b, a) in arrows)
    print(f"arrows between rooms: {len(arrows)}; both ways: {', '.join(map(' and '.join, both)) or 'none'}")
    for what, (line, most) in TRIPS.items():
        found = subprocess.run([sys.executable, "-c", _TRIP.format(line)], capture_output=True, text=True, check=True)
        print(f"files that {what} goes through: {found.stdout.strip()}" + (f" (at most {most})" if most else ""))


def print_counts(rooms: dict[str, collections.Counter[str]]) -> None:
    """Print the files and lines of each room, by kind of line."""
    kinds = ("files", "code", "docstring", "comment", "blank")
    print(f"{'room':16}" + "".join(f"{kind:>11}" for kind in kinds) + f"{'lines':>11}")
    for room in sorted(rooms, key=lambda room: -lines_of(rooms[room])):
        print(f"{room:16}" + "".join(f"{rooms[room][kind]:11,}" for kind in kinds) + f"{lines_of(rooms[room]):11,}")
    whole = sum(rooms.values(), collections.Counter())
    print(f"{'together':16}" + "".join(f"{whole[kind]:11,}" for kind in kinds) + f"{lines_of(whole):11,}")


def print_habits(trees: dict[str, list[ast.Module]], rooms: dict[str, collections.Counter[str]]) -> None:
    """Print each room's raises and constants per 1,000 lines, writes to frozen objects, and function name lengths."""
    headings = ("raises", "/1,000", "constants", "/1,000", "setattr", "one word", "letters")
    print(f"{'room':16}" + "".join(f"{heading:>11}" for heading in headings))
    whole, lines = collections.Counter[str](), 0
    for room in [*sorted(rooms, key=lambda room: -lines_of(rooms[room])), "together"]:
        found = sum((habits_of(tree) for tree in trees.get(room, ())), collections.Counter[str]()) or whole
        length = lines_of(rooms[room]) if room in rooms else lines
        functions = max(found["functions"], 1)
        print(
            f"{room:16}{found['raises']:11}{1000 * found['raises'] / length:11.1f}{found['constants']:11}"
            f"{1000 * found['constants'] / length:11.1f}{found['setattr']:11}{found['one word'] / functions:11.0%}"
            f"{found['letters'] / functions:11.1f}"
        )
        whole, lines = whole + found, lines + length


def habits_of(tree: ast.Module) -> collections.Counter[str]:
    """Count a file's raises, constants, writes to frozen objects and function names."""
    found = collections.Counter[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            found["raises"] += 1
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "object.__setattr__":
            found["setattr"] += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            name = node.name.strip("_")
            found.update({"functions": 1, "one word": "_" not in name, "letters": len(name)})
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        found["constants"] += sum(name.strip("_").isupper() for name in names if not name.startswith("__"))
    return found


def room_of(file: Path) -> str:
    """Return the folder of a file within the package, or "(top)"."""
    return parts[0] if len(parts := file.relative_to(HOUSE).parts) > 1 else "(top)"


def lines_of(found: collections.Counter[str]) -> int:
    """Return the total number of lines."""
    return found.total() - found["files"]


def kinds_of_lines(file: Path, tree: ast.Module) -> collections.Counter[str]:
    """Count lines of code, docstrings, comments and blanks."""
    text = file.read_text(encoding="utf-8")
    kinds = ["code" if line.strip() else "blank" for line in text.splitlines()]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line.strip().startswith("#"):
            kinds[token.start[0] - 1] = "comment"
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            said = node.body[0]
            kinds[said.lineno - 1 : said.end_lineno] = ["docstring"] * (said.end_lineno - said.lineno + 1)  # type: ignore[operator]
    return collections.Counter(kinds)


def imports_of(file: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the rooms that a file imports from at run time; imports for types do not count."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("deltahist."):
            parts = node.module.split(".")  # type: ignore[union-attr]
            yield parts[1] if (HOUSE / parts[1]).is_dir() else "(top)"


if __name__ == "__main__":
    main()
