"""The documentation's examples are tests: the Python and `sh` blocks of a page run from top to bottom.

They run in a folder that holds what `deltahist demo --out demo` writes first. A `toml` block is written to the file
that its first line names. Blocks of other languages are not run.
"""

import contextlib
import functools
import gc
import os
import shlex
import sys
import tempfile
from typing import Any

from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

# What is compiled is kept: workers and the commands that tests start import the same modules again and again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# What collecting makes lives to the end: looking for garbage in it takes a third of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@functools.cache
def _demo_files() -> dict[str, str]:
    from deltahist.sample import sample_districts, sample_points

    return {"visits.csv": sample_points().to_csv(index=False), "districts.geojson": sample_districts().to_json()}


def _run_commands(example: Example) -> None:
    """Run the lines of a block that call deltahist; lines of other programs are not run."""
    from deltahist.cli import main

    for line in example.parsed.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["deltahist"]:
            assert main(words[1:]) == 0, line


def _write_file(example: Example) -> None:
    """Write a block to the file that its first line names: "# deltahist.toml"."""
    with open(example.parsed.split()[1].rstrip(":"), "w", encoding="utf-8") as file:
        file.write(example.parsed)


def _enter(names: dict[str, Any]) -> None:
    names["_left"] = contextlib.ExitStack()
    names["_left"].enter_context(contextlib.chdir(names["_left"].enter_context(tempfile.TemporaryDirectory())))
    os.mkdir("demo")
    for name, text in _demo_files().items():
        with open(f"demo/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    # A strategy that a page registers would be tried, slowly, by all plans of the pages after it.
    from deltahist.strategies import base

    known = dict(base._KNOWN)
    names["_left"].callback(lambda: (base._KNOWN.clear(), base._KNOWN.update(known)))


def _leave(names: dict[str, Any]) -> None:
    names["_left"].close()


pytest_collect_file = Sybil(
    parsers=[
        PythonCodeBlockParser(),
        CodeBlockParser("sh", _run_commands),
        CodeBlockParser("toml", _write_file),
        SkipParser(),
    ],
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md", "docs/**/*.md"],
    setup=_enter,
    teardown=_leave,
).pytest()
