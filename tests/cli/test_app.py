"""A command imports what it needs, and nothing besides that takes long to import."""

import gc
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.cli.app import COMMANDS

ROOT = Path(dh.__file__).parent.parent
#: Packages that no command on a plane needs, as long as nothing is drawn, kept in a ledger or read of a database.
HEAVY = {"cvxpy", "duckdb", "geopandas", "ibis", "matplotlib", "pandas", "pyproj", "rasterio", "sqlalchemy"}
#: What answers of the usual strategy do without.
PARTS = {"shapely", *(f"scipy.{part}" for part in ("fft", "linalg", "ndimage", "optimize", "sparse", "special"))}
PLACE = ["--bounds", "0,0,12,10", "--cell", "1", "--delta", "1", "--epsilon", "1"]
RUN = (
    "import runpy, sys\n"
    "sys.argv[0] = 'deltahist'\n"
    "try: runpy.run_module('deltahist.cli', run_name='__main__')\n"
    "except SystemExit as end: assert not end.code, end.code\n"
    "print('\\nmodules', *sys.modules)"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("light")
    near = dh.Neighbourhood(dh.Domain((0, 0, 12, 10), (12, 10)), 1)
    release = dh.publish(np.ones((12, 10), dtype=int), near, "flow", 1.0)
    release.save(folder / "r.parquet")
    places = np.random.default_rng(3).random((50, 2)) * (12, 10)
    pd.DataFrame(places, columns=["x", "y"]).to_csv(folder / "p.csv", index=False)
    (folder / "boxes.csv").write_text("west,south,east,north\n0.5,1.2,5,6\n")
    return folder


def loaded(folder, *line):
    """Modules that a process has imported when a command line is done."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *line], capture_output=True, text=True, cwd=folder, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    "line",
    [
        ["inspect", "r.parquet"],
        ["query", "r.parquet", "--box", "1,1,5,6", "--box", "0.5,1.2,5,6"],  # whole cells, and some that are cut
        ["query", "r.parquet", "--boxes", "boxes.csv"],
    ],
    ids=" ".join,
)
def test_what_only_reads_a_release_needs_numpy_and_arrow(folder, line):
    found = loaded(folder, *line)
    assert "pyarrow" in found
    assert not (HEAVY | PARTS) & found


@pytest.mark.parametrize(
    "line",
    [
        ["plan", *PLACE, "--bounds", "0,0,4,3"],
        ["publish", "p.csv", "--x", "x", "--y", "y", *PLACE, "--strategy", "flow", "--out", "new.parquet"],
    ],
    ids=lambda line: line[0],
)
def test_who_plans_or_publishes_waits_for_nothing_that_is_not_used(folder, line):
    assert not HEAVY & loaded(folder, *line)


def test_cells_chosen_for_regions_wait_for_no_frame(folder):
    zones = {"type": "Polygon", "coordinates": [[[1, 1], [60, 1], [60, 50], [1, 50], [1, 1]]]}
    feature = {"type": "Feature", "properties": {"name": "a"}, "geometry": zones}
    (folder / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    line = ["--bounds", "0,0,70,60", "--delta", "1", "--epsilon", "1", "--regions", "zones.geojson", "--points", "900"]
    assert not (HEAVY - {"pyproj"}) & loaded(
        folder, "publish", "p.csv", "--x", "x", "--y", "y", *line, "--crs", "none", "--out", "chosen.parquet"
    )


def test_a_table_of_numbers_waits_for_little_of_scipy_and_arrow(folder):
    pd.read_csv(folder / "p.csv").to_parquet(folder / "p.parquet", index=False)
    line = [*PLACE, "--bounds", "0,0,70,70"]  # smaller maps are decoded by general matrices
    found = loaded(folder, "publish", "p.parquet", "--x", "x", "--y", "y", *line, "--out", "auto.parquet")
    others = {"pyarrow.compute", "deltahist.counting.databases", "deltahist.publishers.gradual"}
    assert not ((PARTS | others) - {"scipy.sparse"}) & found


def test_matrices_are_small_and_wait_for_no_threads(folder):
    """NumPy's linear algebra looks at the environment once, when NumPy is imported."""
    before = "import sys, deltahist.cli; assert 'numpy' not in sys.modules"
    after = "import os; print(os.environ['OPENBLAS_NUM_THREADS'])"
    code = f"{before}\n{RUN}\n{after}"
    line = [sys.executable, "-c", code, "inspect", "r.parquet"]
    for said, expected in (({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")):
        environment = {"PYTHONPATH": str(ROOT), **said}
        done = subprocess.run(line, capture_output=True, text=True, cwd=folder, env=environment, check=True)
        assert done.stdout.splitlines()[-1] == expected


def test_garbage_is_looked_for_rarely_in_a_process_of_its_own(folder):
    """Modules stay: to look through them for garbage took a tenth of a short command."""
    before = gc.get_threshold()
    assert main(["inspect", str(folder / "r.parquet")]) == 0
    assert gc.get_threshold() == before
    code = f"{RUN}\nimport gc; print(gc.get_threshold()[0])"
    line = [sys.executable, "-c", code, "inspect", "r.parquet"]
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, capture_output=True, text=True, cwd=folder, env=environment, check=True)
    assert int(done.stdout.splitlines()[-1]) == 100_000


@pytest.mark.parametrize("command", [[], ["publish"]])
def test_help_is_instant(folder, command):
    """It loads nothing that is slow to load: seconds would depend on the machine."""
    assert not {*HEAVY, "numpy", "scipy", "pyarrow", "shapely"} & loaded(folder, *command, "--help")


def test_only_the_command_that_is_called_is_imported(folder):
    found = loaded(folder, "inspect", "r.parquet")
    modules = {f"deltahist.cli.{name}" for name in COMMANDS}
    assert modules & found == {"deltahist.cli.statement"}
