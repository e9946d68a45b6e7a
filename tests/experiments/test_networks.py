"""experiments/proximity_network.py and ego_network.py: reduced runs, end to end."""

import csv

import pytest

from experiments import ego_network, proximity_network


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_places_over_a_network(tmp_path):
    found = proximity_network.run(tmp_path, small=True)
    assert found["ε of all others together"] == pytest.approx(15)
    for row in rows(tmp_path / "proximity_network.csv"):
        assert float(row["rmse"]) == pytest.approx(float(row["stated"]), rel=0.4)
    last = rows(tmp_path / "proximity_coalitions.csv")[-1]
    # Independent noise gives the place away, ours does not; averaging over it only adds noise.
    assert float(last["independent"]) < 0.5 * float(last["nearest"])
    assert float(last["averaged"]) > float(last["nearest"])
    assert (tmp_path / "proximity_network.png").stat().st_size > 50_000


def test_a_bit_in_an_ego_network(tmp_path, capsys):
    ego_network.main(["--small", "--out", str(tmp_path)])
    assert "friends: 60" in capsys.readouterr().out
    for row in rows(tmp_path / "ego_network.csv"):
        for name in ("chain", "projection"):
            assert float(row[name]) == pytest.approx(float(row[f"{name}, law"]), abs=0.12)
        assert float(row["chain, law"]) > float(row["projection, law"])
    last = rows(tmp_path / "ego_coalitions.csv")[-1]
    assert float(last["independent"]) >= float(last["nearest"])
    assert (tmp_path / "ego_network.png").stat().st_size > 30_000
