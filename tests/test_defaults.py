"""The guard of the defaults' speed: what it tells, what it fails for, and what it refuses to compare."""

import json

import pytest

from benchmarks import defaults

KNOWN = {"publish": 10.0, "plan": 4.0}


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Two figures with a committed table; a run measures the ratios that are in a list, one after the other."""
    ratios: dict[str, list[float]] = {}
    made = dict.fromkeys(KNOWN, defaults.Figure(None, True, defaults.plan))
    monkeypatch.setattr(defaults, "FIGURES", made | {"slow": defaults.Figure(1, False, defaults.plan)})
    monkeypatch.setattr(defaults, "TABLE", tmp_path / "results.json")
    monkeypatch.setattr(defaults, "measure", lambda name, folder, rounds=3: (1.0, ratios[name].pop(0)))
    monkeypatch.setattr(defaults.regions, "prepare", lambda folder: (folder / "degrees.csv").write_text("west\n"))
    defaults.write({name: (1.0, ratio) for name, ratio in KNOWN.items()})
    return ratios


def test_worse_by_a_quarter_is_told():
    assert defaults.compare({"publish": 12.4, "plan": 1.0}, KNOWN) == {}
    assert defaults.compare({"publish": 12.6, "plan": 4.0}, KNOWN) == {"publish": pytest.approx(1.26)}


@pytest.mark.parametrize(
    ("measured", "code", "said"),
    [
        ({"publish": [12.4], "plan": [4.0]}, 0, None),
        ({"publish": [19.0], "plan": [4.0]}, 0, "publish: 1.90 times the committed ratio"),
        ({"publish": [21.0, 10.0], "plan": [4.0]}, 0, "publish: 1.00 times the committed ratio"),
        ({"publish": [21.0, 20.5], "plan": [4.0]}, 1, "publish: 2.05 times the committed ratio"),
    ],
)
def test_more_than_twice_fails_when_it_is_so_again(bench, capsys, measured, code, said):
    bench |= measured
    before = defaults.TABLE.read_text()
    assert defaults.main(["--quick"]) == code
    told = [line for line in capsys.readouterr().out.splitlines() if "committed" in line]
    assert told == ([said] if said else [])
    assert defaults.TABLE.read_text() == before
    assert not any(bench.values())


def test_a_missing_row_fails(bench, capsys):
    with pytest.raises(LookupError, match=r"not in both: plan\. .*writes the table anew"):
        defaults.compare(KNOWN, {"publish": 10.0})
    defaults.write({"publish": (1.0, 10.0)})
    assert defaults.main(["--quick"]) == 1
    assert "not in both: plan." in capsys.readouterr().err


def test_a_whole_run_tells_and_writes_the_table(bench, capsys):
    bench |= {"publish": [30.0], "plan": [4.0], "slow": [7.0]}
    assert defaults.main([]) == 0
    assert "publish: 3.00 times the committed ratio" in capsys.readouterr().out
    assert {name: row["ratio"] for name, row in json.loads(defaults.TABLE.read_text()).items()} == {
        "publish": 30.0, "plan": 4.0, "slow": 7.0,
    }  # fmt: skip
    assert "| slow | 1 | 1.0 | 7.0 |" in defaults.TABLE.with_suffix(".md").read_text()


def test_the_committed_table_has_every_figure():
    assert json.loads(defaults.TABLE.read_text()).keys() == defaults.FIGURES.keys()
