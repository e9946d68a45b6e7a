"""The architecture, enforced: imports run downwards only, and public modules cannot reach private ones.

The contracts stand in pyproject.toml and are checked on all imports, those inside functions included; those under
`if TYPE_CHECKING` never run and do not count. Here it is seen that they cover every module, that nothing goes round
them, and that they fail when they are broken.
"""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "deltahist"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

#: These stand at the publisher's keyboard: they may use both sides, and the package by its public names.
TOP = {"__main__", "sample", "sweeping", "cli"}


def test_the_contracts_are_kept(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True, no_logo=True) == 0


def test_every_module_is_public_private_or_at_the_top():
    (sides,) = (c for c in CONTRACTS if c["name"] == "what is public cannot reach what is private")
    modules = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    named = [name.removeprefix("deltahist.") for name in sides["source_modules"] + sides["forbidden_modules"]]
    # Of `network` some modules are public and some private, so that each is named.
    modules |= {f"network.{p.stem}" for p in (PACKAGE / "network").glob("[!_]*.py")}
    assert sorted([*named, *TOP]) == sorted(modules - {"__init__", "network"})


def test_nothing_goes_round_the_contracts():
    """A module found by a computed name, or through the package's own lazy names, would not be seen."""
    graph = grimp.build_graph("deltahist", cache_dir=None, exclude_type_checking_imports=True)
    through = graph.find_modules_that_directly_import("deltahist")
    lines = [d for m in through for d in graph.get_import_details(importer=m, imported="deltahist")]
    assert [
        (line["importer"], line["line_contents"])
        for line in lines
        if line["importer"].split(".")[1] not in TOP and "__version__" not in line["line_contents"]
    ] == []
    called = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in TOP
        and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__", "run_module")
    ]
    assert called == []


@pytest.mark.parametrize(
    "broken",
    [
        {"answers.py": ("def f():\n    from .counting import count", "deltahist.answers -> deltahist.counting"),
         "decode/general.py": ("from ..publishers.publication import publish",
                               "deltahist.decode.general -> deltahist.publishers.publication"),
         "noise/exact.py": ("from .samplers import geometric", "No cycles are allowed in deltahist.noise.")},
        {"novel.py": ("", "not listed as layers")},
    ],
    ids=["imports", "novel"],
)  # fmt: skip
def test_a_broken_contract_is_found(tmp_path, broken):
    shutil.copytree(PACKAGE, tmp_path / "deltahist", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, (line, _) in broken.items():
        with (tmp_path / "deltahist" / file).open("a") as source:
            source.write(f"\n{line}\n")
    code = "import sys, importlinter.cli as c; sys.exit(c.lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert all(each in said for _, each in broken.values()), said
