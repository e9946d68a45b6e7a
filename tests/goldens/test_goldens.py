"""Releases, answers, statements, exports and help pages say what they said (`python -m tests.goldens` writes anew)."""

import warnings
from pathlib import Path

import pytest

from tests.goldens.cases import groups, written


@pytest.mark.parametrize("group", ["histograms", "chains", "lines", "people", "choices", "commands"])
def test_nothing_has_changed(group, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = written(groups(tmp_path)[group]())
    kept = (Path(__file__).parent / f"{group}.txt").read_text(encoding="utf-8")
    assert found.splitlines() == kept.splitlines()
