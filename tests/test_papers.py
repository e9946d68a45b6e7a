"""The index from the papers to the code names what exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINES = re.findall(r"^\|.*\| `([\w/]+\.py)` \| `([\w.]+)` \|$", (ROOT / "docs" / "papers.md").read_text("utf-8"), re.M)


@pytest.mark.parametrize(("file", "name"), LINES)
def test_a_name_is_where_the_index_says(file, name):
    path = ROOT / file if file.startswith("experiments/") else ROOT / "deltahist" / file
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part]
        assert found, f"{name} is not in {file}"
        body = found[-1].body


def test_every_line_of_the_index_is_read():
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert len(LINES) == sum(line.startswith("| ") and "`" in line for line in text.splitlines())
    assert len(LINES) > 50
