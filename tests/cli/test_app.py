"""A command imports what it needs, and nothing besides that takes long to import."""

import gc
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
STATEMENT = "deltahist.cli.statement"
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
    frame = pd.DataFrame(places, columns=["x", "y"])
    frame.to_csv(folder / "p.csv", index=False)
    frame.to_parquet(folder / "p.parquet", index=False)
    (folder / "zones.geojson").write_text(
        f'{{"type": "FeatureCollection", "features": [{{"type": "Feature", "properties": {{}}, "geometry": {ZONES}}}]}}'
    )
    (folder / "boxes.csv").write_text("west,south,east,north\n1,1,5,6\n0.5,1.2,5,6\n")
    return folder


def printed(folder, *line, before="", after="", **environment):
    """The last line that a process prints when a command line is done."""
    code = f"{before}\n{RUN}\n{after}"
    environment |= {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *line], capture_output=True, text=True, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


ZONES = '{"type": "Polygon", "coordinates": [[[1, 1], [60, 1], [60, 50], [1, 50], [1, 1]]]}'
ARROW = {"pyarrow.compute", "deltahist.counting.databases", "deltahist.publishers.gradual"}
CHOSEN = ["--bounds", "0,0,70,60", "--delta", "1", "--epsilon", "1", "--regions", "zones.geojson", "--points", "900"]
TABLE = ["--x", "x", "--y", "y"]
LARGE = [*PLACE, "--bounds", "0,0,70,70"]  # smaller maps are decoded by general matrices
INSTANT = {*HEAVY, "numpy", "scipy", "pyarrow", "shapely"}  # seconds would depend on the machine


@pytest.mark.parametrize(
    ("line", "unwanted"),
    [
        (["--help"], INSTANT),
        (["statement", "r.parquet"], HEAVY | PARTS | {f"deltahist.cli.{name}" for name in COMMANDS} - {STATEMENT}),
        # Whole cells, and some that are cut.
        (["query", "r.parquet", "--boxes", "boxes.csv"], HEAVY | PARTS),
        (["plan", *PLACE, "--bounds", "0,0,4,3"], HEAVY),
        (["publish", "p.csv", *TABLE, *PLACE, "--strategy", "flow", "--out", "new.parquet"], HEAVY),
        (["publish", "p.csv", *TABLE, *CHOSEN, "--crs", "none", "--out", "c.parquet"], HEAVY - {"pyproj"}),
        (["publish", "p.parquet", *TABLE, *LARGE, "--out", "auto.parquet"], (PARTS | ARROW) - {"scipy.sparse"}),
    ],
    ids=lambda given: " ".join(given[:2]) if isinstance(given, list) else "",
)
def test_a_command_imports_nothing_slow_that_it_does_not_use(folder, line, unwanted):
    assert not unwanted & set(printed(folder, *line).split())


def test_matrices_are_small_and_garbage_is_looked_for_rarely(folder):
    """NumPy's linear algebra looks at the environment once; modules stay, so that they hold no garbage."""
    before = "import sys, deltahist.cli; assert 'numpy' not in sys.modules"
    after = "import gc, os; print(os.environ['OPENBLAS_NUM_THREADS'], gc.get_threshold()[0])"
    for said, expected in (({}, "1 100000"), ({"OPENBLAS_NUM_THREADS": "2"}, "2 100000")):
        assert printed(folder, "statement", "r.parquet", before=before, after=after, **said) == expected
    threshold = gc.get_threshold()
    assert main(["statement", str(folder / "r.parquet")]) == 0
    assert gc.get_threshold() == threshold
