"""The index from the papers to the code names what exists."""

import ast
import re
from pathlib import Path

import pytest

import deltahist as dh
from deltahist.mechanisms.histogram import sensitivity

ROOT = Path(__file__).parent.parent
INDEX = (ROOT / "docs" / "internals" / "papers.md").read_text(encoding="utf-8")
#: The heading of the list, what is cited, the file and the name of each line.
LINES = [
    (section.split(":")[0], *line)
    for section in INDEX.split("\n## ")[1:]
    for line in re.findall(r"^(\S.*?) {2,}([\w/]+\.py) +([\w.]+)$", section, re.M)
]


def test_names_are_where_the_index_says_and_cite_the_papers():
    for paper, cited, file, name in LINES:
        path = ROOT / file if file.startswith("experiments/") else ROOT / "deltahist" / file
        found = ast.parse(path.read_text(encoding="utf-8"))
        texts = [ast.get_docstring(found)]
        for part in name.split("."):
            named = [n for n in found.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == part]
            assert named, f"{name} is not in {file}"
            found = named[-1]
        texts.append(ast.get_docstring(found))
        # A citation is the paper, a comma and what is cited, up to a semicolon or the end of the sentence.
        text = " ".join(" ".join(filter(None, texts)).split()).replace("eq. (", "(")
        cites = " ".join(re.findall(rf"\b{paper}, (.*?)(?:;|\.\W|$)", text + " "))
        for part in cited.replace("§", "section ").split(", "):
            assert re.search(rf"(?<!\w){re.escape(part)}(?!\w|\.\d)", cites), f"{file}, {name}: {paper}, {part}"


@pytest.mark.parametrize(("width", "shift", "most", "cost"), [(5, 2, 2, 6), (7, 3, 2, 6), (6, 2, 3, 4)])
def test_one_more_shifted_grid_than_fit_costs_more_than_the_paper_says(width, shift, most, cost):
    domain = dh.Domain((0, 0, 1, 1), (24, 24))
    near = dh.Neighbourhood(domain, shift / 24)
    assert sensitivity(dh.strategies.ShiftedGrids(domain, width, shift), near) == 4
    printed = dh.strategies.ShiftedGrids(domain, width, shift, -(-width // shift))
    assert len(dh.strategies.ShiftedGrids(domain, width, shift).grids) == most
    assert sensitivity(printed, near) == cost


def test_every_line_of_the_index_is_read():
    assert len(LINES) == sum(".py  " in line for line in INDEX.splitlines())
    assert sum(len(cited.split(", ")) for _, cited, _, _ in LINES) > 120


def test_tests_that_pages_name_exist():
    files = {str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("*.py")}
    names = {name for file in files for name in re.findall(r"^def (test_\w+)", (ROOT / file).read_text("utf-8"), re.M)}
    missing = []
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        missing += [(page.name, file) for file in re.findall(r"\btests/[\w/]+\.py", text) if file not in files]
        missing += [
            (page.name, name)
            for name in re.findall(r"\b(test_\w+)\b(?!\.py|\w)", text)
            if name not in names and not any(file.endswith(f"/{name}.py") for file in files)
        ]
    assert missing == []
