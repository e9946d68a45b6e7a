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


def test_tests_that_pages_name_exist():
    files = {str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("*.py")}
    names = {name for file in files for name in re.findall(r"^def (test_\w+)", (ROOT / file).read_text("utf-8"), re.M)}
    missing = []
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        missing += [(page.name, file) for file in re.findall(r"\btests/[\w/]+\.py", text) if file not in files]
        missing += [(page.name, name) for name in re.findall(r"\b(test_\w+)\b(?!\.py|\w)", text)
                    if name not in names and not any(file.endswith(f"/{name}.py") for file in files)]
    assert missing == []
