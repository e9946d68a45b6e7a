"""The architecture, enforced: imports run downwards only, and public modules cannot reach private ones.

The imports are read from the source, those inside functions included; those under `if TYPE_CHECKING` never
run and do not count. Loading modules by a computed name, or through the package's own `__init__`, would
escape the check and is therefore forbidden.
"""

import ast
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "deltahist"

#: The bottom first. A name stands for a module, or for a package with all that is in it. It may import from
#: the rows listed before its own, and from itself.
LAYERS = [
    ["errors"],
    ["_files", "_progress"],
    ["domain"],
    ["neighbourhood", "privacy"],
    ["budget"],
    ["budgets", "workloads"],
    ["strategies", "noise"],
    ["decode", "counts"],
    ["mechanisms"],
    ["checks", "planning", "plots"],
    ["releases"],
    ["publishers", "personal", "answers", "server"],
    ["sample", "cli", "demo", "__main__"],
]

#: Imports (who, whom) that are fine although both are in one row. Keep it free of cycles.
SAME_ROW = {
    ("server", "answers"),
    ("demo", "sample"),
    ("cli", "demo"),
    ("cli", "sample"),
    ("__main__", "cli"),
}

#: These see the data, draw noise or spend budget.
PRIVATE = {"counts", "noise", "publishers", "personal", "budgets"}
#: These stand at the publisher's keyboard: they may use both sides, and the package by its public names.
TOP = {"sample", "cli", "demo", "__main__"}
#: All others are public: nothing private may be reachable from them, by however many steps.

#: Slow to import; `import deltahist` and `deltahist --help` do without.
HEAVY = {"cvxpy", "duckdb", "geopandas", "ibis", "matplotlib", "pandas", "pyproj", "rasterio"}

ROOT = ""  # the package's own __init__, which offers names from both sides


def modules_of(package: Path) -> dict[str, Path]:
    """Every module's dotted name below the package (the package itself is ROOT) and its file."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(tree: ast.AST):
    """All nodes of a syntax tree, except what stands under `if TYPE_CHECKING`."""
    todo = deque([tree])
    while todo:
        node = todo.popleft()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            todo.extend(node.orelse)
        else:
            todo.extend(ast.iter_child_nodes(node))


def imports_of(package: Path, name: str, modules: dict[str, Path]) -> tuple[set[str], list[str]]:
    """The package's modules that one module imports, and what is wrong with the way it does so."""
    targets: set[str] = set()
    wrong: list[str] = []

    def add(full: str, line: int, attribute: str | None = None) -> None:
        """Note the import of `full` (absolute), or of `attribute` from it."""
        if full != package.name and not full.startswith(package.name + "."):
            return
        base = full[len(package.name) + 1 :]
        if attribute is not None and f"{base}.{attribute}".lstrip(".") in modules:
            base = f"{base}.{attribute}".lstrip(".")
        if base not in modules:
            wrong.append(f"{name}:{line} imports {full}, which does not exist")
        elif base != ROOT:
            parts = base.split(".")  # importing a.b runs the __init__ of a, too
            targets.update(".".join(parts[:n]) for n in range(1, len(parts) + 1))
        elif attribute != "__version__" and name.split(".")[0] not in TOP:
            wrong.append(f"{name}:{line} imports through the package's __init__: import the module itself")

    for node in statements(ast.parse(modules[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                add(alias.name, node.lineno)
                if alias.asname is None and "." in alias.name:  # `import package.x` binds `package`
                    add(alias.name.split(".")[0], node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                home = [package.name, *name.split(".")] if name else [package.name]
                up = node.level - (modules[name].name == "__init__.py")
                base = ".".join([*home[: len(home) - up], *filter(None, [node.module])])
            for alias in node.names:
                add(base, node.lineno, alias.name)
        elif isinstance(node, ast.Call) and name != ROOT:
            called = ast.unparse(node.func).split(".")[-1]
            if called in ("import_module", "__import__", "run_module"):
                wrong.append(f"{name}:{node.lineno} calls {called}: write an import statement")
    return targets - {name}, wrong


def problems_of(package: Path) -> list[str]:
    """Everything in the package that breaks the rules at the top of this file, one line each."""
    modules = modules_of(package)
    row = {name: number for number, names in enumerate(LAYERS) for name in names}
    graph: dict[str, set[str]] = {}
    problems = []
    for name in sorted(set(modules) - {ROOT}):
        graph[name], wrong = imports_of(package, name, modules)
        problems += wrong
        top = name.split(".")[0]
        if top not in row:
            problems.append(
                f"{name} has no layer: add {top!r} to LAYERS in tests/test_layers.py, "
                "and to PRIVATE if it sees the data or draws noise"
            )
            continue
        for target in sorted(graph[name]):
            below = target.split(".")[0]
            if below == top or (top, below) in SAME_ROW or row.get(below, -1) < row[top]:
                continue
            problems.append(f"{name} imports {target}, which is not below it in LAYERS")
    for name in graph:
        if name.split(".")[0] not in PRIVATE | TOP:
            ways = private_ways(graph, name)
            problems += [f"{name} is public and reaches private code: {way}" for way in ways]
    return problems


def private_ways(graph: dict[str, set[str]], start: str):
    """The shortest way from a module to each private module that it can reach."""
    came_from: dict[str, str] = {start: ""}
    todo = deque([start])
    while todo:
        here = todo.popleft()
        if here.split(".")[0] in PRIVATE:
            way = [here]
            while came_from[way[-1]]:
                way.append(came_from[way[-1]])
            yield " -> ".join(reversed(way))
            continue
        for target in sorted(graph.get(here, ())):
            if target not in came_from:
                came_from[target] = here
                todo.append(target)


def test_imports_run_downwards_and_public_modules_cannot_reach_private_ones():
    problems = problems_of(PACKAGE)
    assert not problems, "\n" + "\n".join(problems)


def test_the_table_is_consistent():
    names = [name for row in LAYERS for name in row]
    assert len(names) == len(set(names))
    assert set(names) >= PRIVATE | TOP
    assert all({who, whom} <= set(row) for who, whom in SAME_ROW for row in LAYERS if who in row)


@pytest.mark.parametrize("command", ["import deltahist", "--help"])
def test_heavy_packages_are_not_imported_at_once(command):
    if command == "--help":
        command = (
            "import runpy; sys.argv = ['deltahist', '--help']\n"
            "try: runpy.run_module('deltahist.cli', run_name='__main__', alter_sys=True)\n"
            "except SystemExit as end: assert not end.code, end.code\n"
            "else: raise AssertionError('python -m deltahist.cli --help did nothing')"
        )
    code = f"import sys\n{command}\nprint('\\nmodules', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "deltahist" in loaded
    assert not loaded & HEAVY


# The checker itself, on small invented packages.

SOUND = {
    "__init__": "from fake import answers, counts",
    "errors": "",
    "domain": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fake.counts import Counts",
    "counts": "from . import domain",
    "decode": "from fake.domain import Domain\nimport numpy",
    "planning": "def f():\n    from fake.decode import solve",
    "releases": "from fake import __version__",
    "answers": "from fake.planning import f\nfrom .decode import solve\nimport fake.releases as r",
    "publishers.__init__": "from .histogram import publish",
    "publishers.histogram": "from .. import counts\nfrom ..releases import Release",
    "cli": "import fake\nfrom fake import publish",
}


def write(package: Path, sources: dict[str, str]) -> Path:
    for name, source in sources.items():
        path = package.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return package


def test_the_checker_accepts_a_sound_package(tmp_path):
    assert problems_of(write(tmp_path / "fake", SOUND)) == []


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        # planning may import counts by its row; answers then reaches counts through it
        ("planning", "def f():\n    from fake.counts import count", "answers -> planning -> counts"),
        ("publishers.histogram", "from ..novel import x", "imports fake.novel, which does not exist"),
        ("planning", "if x:\n    from . import counts", "answers -> planning -> counts"),
        ("answers", "import fake.publishers.histogram as h", "answers -> publishers"),
        ("answers", "from fake import publish", "through the package's __init__"),
        ("answers", "from . import *", "through the package's __init__"),
        ("answers", "import fake.releases", "through the package's __init__"),
        ("answers", "import importlib\nimportlib.import_module('fake.counts')", "calls import_module"),
        ("answers", "__import__('fake.counts')", "calls __import__"),
        ("answers", "if not TYPE_CHECKING:\n    import fake.counts as c", "answers -> counts"),
        ("domain", "from fake.decode import solve", "domain imports decode, which is not below"),
        ("decode", "from fake.counts import count", "decode imports counts, which is not below"),
        ("planning", "async def f():\n    from .releases import g", "planning imports releases, which is not below"),
        ("novel", "", "novel has no layer: add 'novel' to LAYERS"),
        ("domain", "from fake.novel import x", "imports fake.novel, which does not exist"),
    ],
)
def test_the_checker_finds_what_is_wrong(tmp_path, name, source, message):
    problems = problems_of(write(tmp_path / "fake", SOUND | {name: source}))
    assert any(message in problem for problem in problems), problems
