"""The documentation's examples are tests: every Python block of a page, top to bottom, in an empty folder."""

import contextlib
import gc
import os
import sys
import tempfile
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# What is compiled is kept: workers and the commands that tests start import the same modules again and again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# What collecting makes lives to the end: looking for garbage in it takes a third of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def _enter(names: dict[str, Any]) -> None:
    names["_left"] = contextlib.ExitStack()
    names["_left"].enter_context(contextlib.chdir(names["_left"].enter_context(tempfile.TemporaryDirectory())))
    # A strategy that a page registers would be tried, slowly, by all plans of the pages after it.
    from deltahist.strategies import base

    known = dict(base._KNOWN)
    names["_left"].callback(lambda: (base._KNOWN.clear(), base._KNOWN.update(known)))


def _leave(names: dict[str, Any]) -> None:
    names["_left"].close()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
    setup=_enter,
    teardown=_leave,
).pytest()
