"""_progress.py: work reports its progress to a hook, which the command line shows as a bar on a terminal."""

import sys
import threading
import time

import pytest

from deltahist import _progress
from deltahist._progress import progress
from deltahist.cli import console, main


def test_without_a_hook_nothing_is_shown(capsys):
    assert _progress.SHOW is None
    with progress("counting", 2) as advance:
        advance(2)
    assert capsys.readouterr() == ("", "")


def test_a_hook_hears_of_functions_and_of_what_they_advance(monkeypatch):
    heard = []

    class Show:
        def __init__(self, what, total):
            heard.append((what, total))

        def __enter__(self):
            return heard.append

        def __exit__(self, *problem):
            heard.append("done")

    monkeypatch.setattr(_progress, "SHOW", Show)

    @progress("adding")
    def add(a, b):
        return a + b

    assert add(1, 2) == 3
    with pytest.raises(ZeroDivisionError), progress("dividing", 5) as advance:
        advance(3 // 0)
    assert heard == [("adding", None), "done", ("dividing", 5), "done"]


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, True), (9.0, False)])
def test_a_bar_appears_after_a_while_and_leaves_no_thread(monkeypatch, capsys, seconds, shown):
    monkeypatch.setattr(console, "_AFTER", seconds)
    monkeypatch.setenv("FORCE_COLOR", "1")
    before = threading.active_count()
    with console.show_bar("counting", 3) as advance, console.show_bar("inner", None) as inner:
        time.sleep(0.3)
        advance(2)
        inner(1)
    said = capsys.readouterr()
    assert said.out == ""
    assert ("counting" in said.err) == shown
    assert "inner" not in said.err
    time.sleep(0.3)  # rich ends its thread by itself
    assert threading.active_count() == before


@pytest.mark.parametrize(("line", "terminal", "shown"), [
    (["ledger", "none"], True, True),
    (["-q", "ledger", "none"], True, False),
    (["ledger", "none"], False, False),
    (["serve", "none.parquet", "--check"], True, False),
])  # fmt: skip
def test_bars_are_for_terminals(monkeypatch, line, terminal, shown):
    monkeypatch.setattr(_progress, "SHOW", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert main(line) == 2
    assert (_progress.SHOW is not None) == shown
