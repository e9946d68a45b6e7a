"""The guard of the defaults' speed: what it tells, what it fails for, and what it refuses to compare."""

import json
from types import SimpleNamespace

import pytest

from benchmarks import defaults, table
from benchmarks.defaults import Sample
from deltahist.strategies.base import strategies

KNOWN = {"publish": 10.0, "plan": 4.0}


def session(name, ratios, quick=True):
    """A session that measures the ratios of a list, one after the other."""
    measured = lambda folder: {name: Sample(ratios.pop(0), 3.0, 1.0, 2.0)}  # noqa: E731
    return SimpleNamespace(units={name: "s"}, quick=quick, measure=measured)


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Two figures with a committed table, and a slow one without."""
    ratios = {"publish": [], "plan": [], "slow": []}
    sessions = [session(name, each, name != "slow") for name, each in ratios.items()]
    monkeypatch.setattr(table, "SESSIONS", sessions)
    monkeypatch.setattr(table, "TABLE", tmp_path / "results.json")
    monkeypatch.setattr(table, "ASKED", {"slow": 1})
    monkeypatch.setattr(table, "prepare", lambda folder, quick: None)
    table.write({name: table.row("s", None, [Sample(ratio, 1, 1, 1)]) for name, ratio in KNOWN.items()})
    return ratios


@pytest.mark.parametrize(
    ("publish", "code", "said"),
    [
        ([12.4], 0, None),
        ([12.6], 0, "publish: 1.26 times the committed ratio"),
        ([29.0], 0, "publish: 2.90 times the committed ratio"),
        ([31.0, 40.0, 10.0, 40.0], 0, None),
        ([31.0, 32.0, 30.5, 33.0], 1, "publish: 3.05 times the committed ratio"),
    ],
)
def test_more_than_three_times_fails_when_it_is_so_again(bench, capsys, publish, code, said):
    bench["publish"] += publish
    bench["plan"] += [4.0]
    before = table.TABLE.read_text()
    assert table.main(quick=True) == code
    told = [line for line in capsys.readouterr().out.splitlines() if "committed" in line]
    assert told == ([said] if said else [])
    assert table.TABLE.read_text() == before
    assert not any(bench.values())


def test_the_committed_table_has_every_figure():
    assert list(json.loads(table.TABLE.read_text())) == [name for each in defaults.SESSIONS for name in each.units]


def test_every_strategy_is_measured_but_those_that_are_never_the_best():
    known = {name for name, kind in strategies().items() if kind.__module__.startswith("deltahist.")}
    assert {each.strategy for each in defaults.SETTINGS.values()} == known - {"ShiftedGrids", "Wavelet"}


@pytest.mark.parametrize("setting", [s for s, each in defaults.SETTINGS.items() if min(each.sides) <= 64])
def test_auto_takes_the_strategy_that_is_measured(setting):
    chosen = defaults.SETTINGS[setting]
    chosen.publish(min(chosen.sides))()
