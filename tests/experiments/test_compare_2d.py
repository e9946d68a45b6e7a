"""The comparison: one command gives the table, the JSON and the picture; bad input is named."""

import json
import math

import numpy as np
import pytest

from experiments.compare_2d import main
from experiments.peers import NEARBY, PEERS, STRATEGIES


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal((10, 20), 2, (4000, 2)), rng.uniform(0, 32, (300, 2))]).clip(0, 31.9)
    counts = np.histogram2d(*points.T, bins=32, range=[(0, 32), (0, 32)])[0]
    np.save(tmp_path / "counts.npy", counts)
    return tmp_path / "counts.npy"


def test_the_command_measures_everything(data, tmp_path, capsys):
    out = tmp_path / "out.json"
    line = ["--data", str(data), "--epsilon", "1", "--delta-cells", "1,2", "--json", str(out)]
    main([*line, "--side", "16", "--trials", "2", "--queries", "300", "--limits", "1,2"])
    found = json.loads(out.read_text("utf-8"))
    keys = {"mechanism", "family", "relation", "delta_cells", "privacy", "epsilon", "rmse", "seconds"}
    assert all(set(row) == keys | {"limit", "any_move"} for row in found)
    ours = [r for r in found if r["family"] == "ours"]
    peers = [r for r in found if r["family"] == "peer"]
    assert {r["delta_cells"] for r in ours} == {1, 2}
    assert {r["relation"] for r in ours} == {"delta"}
    near = [r for r in peers if r["mechanism"].removesuffix(", non-negative") in NEARBY]
    assert {(r["relation"], r["delta_cells"], r["limit"], r["epsilon"]) for r in near} == {("delta", 1, None, 1)}
    assert {r["any_move"] for r in near} == {15, math.hypot(16, 16)}
    peers = [r for r in peers if r not in near]
    assert {(r["relation"], r["delta_cells"]) for r in peers} == {("any", None)}
    assert {r["privacy"] for r in ours} == {"pure", "approx"} == {r["privacy"] for r in peers} - {"claimed"}
    assert {*PEERS, *STRATEGIES, "Gaussian optimum"} <= {r["mechanism"] for r in peers}
    assert all(r["rmse"] > 0 and r["seconds"] > 0 for r in found)
    assert all(r["epsilon"] == 1 for r in ours)
    assert {(r["epsilon"], r["limit"], r["any_move"]) for r in peers} == {(1, 1, 1), (2, 2, 2)}
    assert {r["limit"] for r in ours} == {None, 1, 2}
    assert all(r["any_move"] <= r["limit"] + 1e-9 for r in ours if r["limit"] is not None)
    assert max(r["any_move"] for r in ours if r["limit"] is None) == 15  # a flow across 15 lines
    best = min(r["rmse"] for r in ours if r["delta_cells"] == 1)
    assert best < min(r["rmse"] for r in peers if r["limit"] == 1)
    assert out.with_name("out-frontier.png").read_bytes()[:4] == b"\x89PNG"
    assert out.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    assert "ours / approx peer" in capsys.readouterr().out
