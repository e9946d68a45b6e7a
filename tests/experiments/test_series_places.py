"""experiments/series_places.py: a reduced run, end to end."""

from __future__ import annotations

from pathlib import Path

from experiments import series_places


def test_a_reduced_run_shows_that_places_come_back(tmp_path: Path) -> None:
    found = series_places.run(tmp_path, small=True)
    assert found["least coverage"] >= 0.95
    assert found["least coverage by chance"] <= 0.91
    assert (tmp_path / "series_places.csv").read_text().count("\n") == 3
