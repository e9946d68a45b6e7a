"""Domains with three axes: neighbours, costs and errors against their definitions."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
import shapely

import deltahist as dh
from deltahist.cli import main
from deltahist.decode import DenseDecoder, make_decoder
from deltahist.mechanisms.histogram import explicit_edge_cost
from deltahist.strategies import Cumulative, CutAugmented, Flow, Hierarchical, Identity, ShiftedGrids
from tests.laws import calibrate

BOX = dh.Domain((0, 0, 0, 4, 1, 3), (4, 2, 5))
STRATEGIES = [
    Identity(BOX),
    Hierarchical(BOX, 2),
    Cumulative(BOX),
    Cumulative(BOX, "prefix"),
    ShiftedGrids(BOX, width=2, shift=1),
    CutAugmented(BOX, ((0, 5, 7), (3, 5), (1,), (2, 23))),
]


@pytest.mark.parametrize("delta", [0.4, 1, 1.3, 2.5, 9])
@pytest.mark.parametrize("sources", [None, "boundary"])
def test_neighbours_are_cells_with_a_gap_below_delta(delta, sources):
    near = dh.Neighbourhood(BOX, delta, sources, limits=())
    cells, steps = list(np.ndindex(BOX.shape)), np.array(BOX.steps)
    expected = set()
    for (one, a), (other, b) in itertools.combinations(enumerate(cells), 2):
        gap = np.maximum(np.abs(np.subtract(a, b)) - 1, 0) * steps
        if int((gap**2).sum()) < near.radius**2:
            expected.add((one, other))
    for place, cell in enumerate(cells) if sources else ():
        if any(min(c, n - 1 - c) * k < near.radius for c, n, k in zip(cell, BOX.shape, BOX.steps, strict=True)):
            expected.add((-1, place))
    edges = near.edges()
    assert {tuple(sorted(edge)) for edge in edges.tolist()} == expected
    assert len(edges) == len(expected)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("sources", [None, "boundary"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: each.name)
def test_costs_are_those_of_the_worst_edge(strategy, sources, norm):
    for delta in (0.4, 1, 1.3, 2.5, 9):
        near = dh.Neighbourhood(BOX, delta, sources, limits=())
        found = dh.sensitivity(strategy, near, norm=norm)
        assert (found if norm == 1 else found.squared) == explicit_edge_cost(strategy, near, norm)


@pytest.mark.parametrize("strategy", STRATEGIES[:4], ids=lambda each: each.name)
@pytest.mark.parametrize("known", [False, True])
def test_errors_of_all_boxes_equal_the_dense_ones(strategy, known):
    laws = calibrate(strategy, dh.Neighbourhood(BOX, 1), epsilon=1)
    dense, found = DenseDecoder(strategy, laws, known), make_decoder(strategy, laws, total_known=known)
    work = dh.workloads.all_ranges(BOX)
    expected = dense.moments(work.matrix(BOX)).variance
    assert np.allclose(found.moments(work).variance, expected, atol=1e-7) or "bound" in found.note
    assert found.mean_variance(work) >= expected.mean() * (1 - 1e-9)
    values = np.random.default_rng(1).integers(0, 9, strategy.shape[0])
    assert np.allclose(found.estimate_cells(values, 50), dense.estimate_cells(values, 50), atol=1e-6)


def test_a_cube_publishes_answers_and_states_its_promise(tmp_path):
    rng, side = np.random.default_rng(1), 32
    cube = dh.Domain((0,) * 3 + (side,) * 3, (side,) * 3)
    points = rng.random((50_000, 3)) * side
    near = dh.Neighbourhood(cube, 2, limits=[(6, 2), ("any", 3)])
    pd.DataFrame(points, columns=[*"xyz"]).to_csv(tmp_path / "points.csv", index=False)
    counts = dh.count_file(tmp_path / "points.csv", cube, x="x", y="y", z="z").counts
    assert (counts.array == dh.count(points, cube).array).all()
    dh.publish(counts, near, epsilon=1, rng=rng).save(tmp_path / "cube.parquet")
    again = dh.load(tmp_path / "cube.parquet")
    corners = dh.workloads.all_ranges(cube).sample(100).corners
    pairs = zip(corners[:, :3], corners[:, 3:], strict=True)
    truth = [((points >= low) & (points < high)).all(axis=1).sum() for low, high in pairs]
    for nonnegative in (False, True):
        found = dh.answer(again, corners, nonnegative=nonnegative)
        assert np.abs(found["estimate"] - truth).max() < 6 * found["std_error"].max()
    frame = again.to_pandas()
    assert frame["estimate"].sum() == pytest.approx(50_000)
    assert frame.loc[33, ["column", "row", "level", "z"]].tolist() == [0, 1, 1, 1.5]
    assert again.any_move <= 3
    assert "any move" in dh.write_statement(again)
    assert again._repr_html_().startswith("<pre>")


def test_commands_publish_and_answer_three_axes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "points.csv").write_text("x,y,floor\n" + "1.5,0.5,2.5\n" * 500)
    where = "--x x --y y --z floor --bounds 0,0,0,3,2,4 --cell 1 --delta 1 --epsilon 2 --out r.parquet"
    (tmp_path / "boxes.csv").write_text("west,south,bottom,east,north,top\n1,0,2,2,1,3\n")
    assert main(["publish", "points.csv", *where.split()]) == 0
    capsys.readouterr()
    assert main(["query", "r.parquet", "--box", "1,0,2,2,1,3", "--boxes", "boxes.csv", "--format", "json"]) == 0
    one, other = json.loads(capsys.readouterr().out)["answers"]
    assert one["box"] == other["box"] == [1, 0, 2, 2, 1, 3]
    assert abs(one["estimate"] - 500) < 40
    line = ["publish", "points.csv", *where.replace("r.parquet", "n.parquet").split(), "--dry-run"]
    assert main(line) == 0
    for wrong in (["--where", "level = 2"], ["--cell", "auto"], ["--sources", "boxes.csv"]):
        assert main([*line[:-1], *wrong]) == 2


def test_what_needs_a_map_refuses_a_third_axis():
    near = dh.Neighbourhood(BOX, 1)
    release = dh.publish(np.ones(BOX.shape, int), near, epsilon=1)
    for make in (
        lambda: dh.Domain((0, 0, 0, 1, 1, 1), (2, 2, 2), "EPSG:32618"),
        lambda: dh.Neighbourhood(BOX, 1, shapely.Point(0, 0)),
        lambda: dh.publish(np.ones(BOX.shape, int), near, "tents", 1),
        lambda: dh.Mechanism(near, Flow(BOX), dh.Budget(1)).laws,
        lambda: dh.answer(release, [[0, 0, 0, 1.5, 1, 2]]),
        lambda: dh.answer(release, [shapely.box(0, 0, 1, 1)]),
        lambda: dh.plots.draw_png(release),
        release.to_geopandas,
    ):
        with pytest.raises(dh.InputError):
            make()
