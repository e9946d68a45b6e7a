"""The guard of the defaults' speed measures every strategy."""

import json

import pytest

from benchmarks import defaults, table
from deltahist.strategies.base import strategies


def test_the_committed_table_has_every_figure():
    assert list(json.loads(table.TABLE.read_text())) == [name for each in defaults.SESSIONS for name in each.units]


def test_every_strategy_is_measured_but_those_that_are_never_the_best():
    known = {name for name, kind in strategies().items() if kind.__module__.startswith("deltahist.")}
    assert {each.strategy for each in defaults.SETTINGS.values()} == known - {"GraphFlow", "ShiftedGrids", "Wavelet"}


@pytest.mark.parametrize("setting", [s for s, each in defaults.SETTINGS.items() if min(each.sides) <= 64])
def test_auto_takes_the_strategy_that_is_measured(setting):
    chosen = defaults.SETTINGS[setting]
    chosen.publish(min(chosen.sides))()
