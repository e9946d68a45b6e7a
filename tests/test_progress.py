"""Bars: after a while, one below the other on a terminal, and as plain lines in a log."""

import io
import sys
import time

import pytest

from deltahist import _progress
from deltahist._progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def wait_for(text, terminal):
    until = time.monotonic() + 30
    while text not in terminal.getvalue() and time.monotonic() < until:
        time.sleep(0.01)


@pytest.fixture
def on_terminal(monkeypatch):
    """Return a function that makes stderr a terminal, which pytest would take back before the test begins."""

    def on_terminal(after=0.01):
        monkeypatch.setattr(sys, "stderr", Terminal())
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(_progress, "_AFTER", after)
        return sys.stderr

    return on_terminal


def test_what_is_over_soon_is_not_shown(on_terminal):
    terminal = on_terminal(after=60)
    with progress("counting", 10) as advance:
        advance(1)
    assert terminal.getvalue() == ""


def test_bars_stand_below_each_other_and_are_gone_afterwards(on_terminal, capsys):
    terminal = on_terminal()
    with progress("outside", 4) as advance:
        advance(3)
        wait_for("3/4", terminal)
        with progress("inside"):
            wait_for("inside", terminal)
            print("an answer")
    seen = terminal.getvalue()
    assert "outside" in seen
    assert "inside" in seen
    assert "3/4" in seen
    assert capsys.readouterr().out == "an answer\n"  # not led to stderr with the bar
    assert not _progress._shown
    assert "side" not in seen.rsplit("\x1b[2K", 1)[1]


def test_a_log_gets_plain_lines_now_and_then(capfd, monkeypatch):
    monkeypatch.setattr(_progress, "_BETWEEN", 0.05)

    @progress("counting", 2000)
    def count():
        time.sleep(0.12)

    with progress("drawing", 2000) as advance:
        advance(1500)
        time.sleep(0.12)
    count()
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "drawing: 1,500 of 2,000, 0 s so far"
    assert lines[-1] == "counting: 0 of 2,000, 0 s so far"
    assert 2 <= len(lines) <= 6


def test_an_error_ends_the_bar(on_terminal):
    terminal = on_terminal()
    @progress("dividing")
    def divide():
        wait_for("dividing", terminal)
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        divide()
    assert "dividing" in terminal.getvalue()
    assert not _progress._shown


def test_whoever_wants_none_has_none(on_terminal):
    terminal = on_terminal()
    with progress("counting", wanted=False):
        time.sleep(0.1)
    assert terminal.getvalue() == ""


def test_a_service_writes_its_logs_alone(on_terminal, monkeypatch):
    monkeypatch.setattr(_progress.TELLING, "quiet", True)  # as `write_logs` sets it
    terminal = on_terminal()
    with progress("estimating"):
        time.sleep(0.1)
    assert terminal.getvalue() == ""
