"""Seeded releases and their answers stay the same (`python -m tests.goldens` writes them anew)."""

import warnings
from pathlib import Path

import pytest

from tests.goldens.cases import GROUPS, written


@pytest.mark.parametrize("group", GROUPS)
def test_seeded_numbers_stay_the_same(group, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = written(GROUPS[group](tmp_path))
    kept = (Path(__file__).parent / f"{group}.txt").read_text(encoding="utf-8")
    assert found.splitlines() == kept.splitlines()
