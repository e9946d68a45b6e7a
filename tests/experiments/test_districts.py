"""experiments/districts.py: a reduced run, end to end."""

from __future__ import annotations

from pathlib import Path

from experiments import districts


def test_a_reduced_run_keeps_its_promises(tmp_path: Path) -> None:
    found = districts.run(tmp_path, small=True)
    assert found["least coverage"] >= 0.92
    assert found["largest width over need"] <= 2.2
    assert found["mean error over even"] < 1.0
    assert found["least coverage of squares about points"] >= 0.92
    assert (tmp_path / "districts.csv").read_text().count("\n") > 3
