"""Check docstrings, the README and the guide against docs/style.md: `python tools/prose.py`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HOUSE = Path(__file__).parent.parent / "deltahist"
PAGES = (HOUSE.parent / "README.md", HOUSE.parent / "docs" / "guide.md")
#: Words that a sentence of a summary may have.
MOST_WORDS = 20
BANNED = re.compile(r"^What\b|\b(what is|those of|so many|is said|for people|as it is)\b")


def main() -> None:
    """Print each docstring or line that breaks a rule, and exit with 1 if there is one."""
    found = [line for file in sorted(HOUSE.rglob("*.py")) for line in complaints(file)]
    for page in PAGES:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            if phrase := BANNED.search(line):
                found.append(f"{page.name}:{number}: says {phrase[0]!r}")
    print(*found, sep="\n")
    sys.exit(bool(found))


def complaints(file: Path) -> Iterator[str]:
    """Yield a line for each docstring of a file that has a banned phrase or a long sentence."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        text = ast.get_docstring(node)
        if text is None:
            continue
        where = f"{file.relative_to(HOUSE.parent)}:{getattr(node, 'lineno', 1)}: {getattr(node, 'name', 'module')}:"
        if phrase := BANNED.search(text):
            yield f"{where} says {phrase[0]!r}"
        summary = text.split("\n\n")[0]
        for sentence in re.split(r"(?<=[.;:])\s", summary):
            if len(words := sentence.split()) > MOST_WORDS:
                yield f"{where} {len(words)} words in {' '.join(words[:6])!r} ..."


if __name__ == "__main__":
    main()
