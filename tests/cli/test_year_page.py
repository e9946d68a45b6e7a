"""The commands of docs/year.md, as they stand there: a newcomer's year."""

import re
import shlex
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

from deltahist.cli import main
from deltahist.sample import sample_points

PAGE = Path(__file__).parents[2] / "docs" / "year.md"


def commands():
    """Return the command lines of the page, in order."""
    blocks = re.findall(r"^```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The three files that the page begins with."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    visits = sample_points()
    when = pd.Timestamp("2026-01-05") + pd.to_timedelta(
        rng.integers(52 * 7 * 24 * 60, size=len(visits)), "min"
    )
    visits.assign(when=when.strftime("%Y-%m-%dT%H:%M:%SZ")).to_csv("visits.csv", index=False)
    frame = shapely.box(578_000, 4_501_000, 593_000, 4_518_000)
    centres = shapely.MultiPoint(rng.uniform((578_000, 4_501_000), (593_000, 4_518_000), (50, 2)))
    shapes = [
        shapely.intersection(each, frame) for each in shapely.voronoi_polygons(centres, extend_to=frame).geoms
    ]
    names = [f"District {number}" for number in range(1, 51)]
    gpd.GeoDataFrame({"district": names}, geometry=shapes, crs="EPSG:32618").to_file("districts.gpkg")
    corners = rng.uniform((-74.06, 40.67), (-73.94, 40.77), (10_000, 2))
    boxes = np.hstack([corners, corners + rng.uniform(0.005, 0.02, (10_000, 2))])
    pd.DataFrame(boxes, columns=["west", "south", "east", "north"]).to_csv("boxes.csv", index=False)
    return tmp_path


def test_the_page_s_commands_work_one_after_another(folder, capsys):
    lines = commands()
    assert len(lines) > 20
    for program, *line in lines:
        assert program == "deltahist"
        assert main(line) == 0, f"{shlex.join(line)}\n{capsys.readouterr().err}"
    answers = pd.read_csv("districts.csv")
    assert len(answers) == 50
    assert {"estimate", "std_error", "low", "high"} <= set(answers)
    assert len(pd.read_parquet("boxes.parquet")) == 10_000
    assert "2026-05-04, withdrawn" in Path("weeks.html").read_text()
