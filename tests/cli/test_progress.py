"""Progress is shown on a terminal, unless --quiet."""

import sys

import pytest

from deltahist import cli


@pytest.mark.parametrize(
    ("terminal", "quiet", "shown"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_progress_is_shown_on_a_terminal_unless_quiet(monkeypatch, capsys, terminal, quiet, shown):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setitem(cli.STATE, "quiet", quiet)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    with cli.show_progress("Counting", 3) as advance:
        advance()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("Counting" in printed.err, "1/3" in printed.err) == (shown, shown)
