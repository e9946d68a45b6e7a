"""The released numbers as they are: each with its noise, and the box that it counts."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import deltahist as dh
from deltahist.errors import InputError
from deltahist.releases.tidy import export_numbers, find_boxes, numbers_frame

PLANE = dh.Domain((0, 0, 6, 5), (6, 5))
LINE = dh.Domain((0, 8), (8,))
S = dh.strategies


def box_of(row, shape):
    """The box of cells that a row of a strategy's matrix sums evenly, and how often; None for none."""
    weights = row.reshape(shape)
    there = np.nonzero(weights)
    if not len(there[0]):
        return None
    low, high = [each.min() for each in there], [each.max() + 1 for each in there]
    inside = weights[tuple(slice(one, other) for one, other in zip(low, high, strict=True))]
    return (low, high, inside.flat[0]) if (inside == inside.flat[0]).all() else None


@pytest.mark.parametrize(
    "strategy",
    [
        S.Identity(PLANE), S.Hierarchical(PLANE), S.Flow(PLANE), S.Flow(PLANE, 2), S.Tents(PLANE), S.Wavelet(LINE),
        S.Cumulative(LINE), S.ShiftedGrids(PLANE, width=2, shift=1), S.CutAugmented(LINE, ((0, 1), (2, 5))),
    ],
    ids=lambda each: each.name,
)  # fmt: skip
def test_boxes_are_those_of_the_rows(strategy):
    weight, (low, high) = find_boxes(strategy)
    for number, row in enumerate(strategy.matrix().toarray()):
        expected = box_of(row, strategy.domain.shape)
        assert np.isnan(weight[number]) == (expected is None)
        if expected is not None:
            assert (low[:, number].tolist(), high[:, number].tolist(), weight[number]) == expected


def test_numbers_stand_beside_their_noise_and_box():
    release = dh.publish(np.ones(PLANE.shape, dtype=int), dh.Neighbourhood(PLANE, 1), "hierarchical:2", epsilon=1)
    found = numbers_frame(release)
    assert found["value"].tolist() == release.values.tolist()
    noise = {row["rows"]: row["std"] for row in release.mechanism.noise_rows()}
    assert found["noise_std"].tolist() == pytest.approx([noise[group] for group in found["group"]])
    assert found.loc[0, ["west", "south", "east", "north"]].tolist() == [0, 0, 6, 5]
    flow = dh.publish(np.ones(PLANE.shape, dtype=int), dh.Neighbourhood(PLANE, 1), "flow", epsilon=1)
    shared = numbers_frame(flow)
    assert shared["noise_std"].isna().all()
    assert np.allclose(shared["value"] / shared["weight"], flow.cells().ravel())


def test_sorted_points_have_numbers_without_boxes():
    line = dh.publish_sorted(np.arange(100) / 20, dh.Neighbourhood(LINE, 1), 1.0)
    found = numbers_frame(line)
    assert list(found.columns) == ["number", "group", "value", "law", "noise_std"]
    assert found["noise_std"].iloc[0] == pytest.approx(line.mechanism.noise_rows()[0]["std"])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_file_says_what_the_numbers_are(tmp_path, form):
    release = dh.publish(np.ones(LINE.shape, dtype=int), dh.Neighbourhood(LINE, 1), "wavelet", epsilon=1)
    export_numbers(release, tmp_path / f"n.{form}")
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet}[form]
    pd.testing.assert_frame_equal(
        read(tmp_path / f"n.{form}").astype({"group": str, "law": str}),
        numbers_frame(release).astype({"group": str, "law": str}), check_dtype=False,
    )  # fmt: skip
    if form == "csv":
        said = json.loads((tmp_path / "n.csv-metadata.json").read_text(encoding="utf-8"))
        assert said["tableSchema"]["primaryKey"] == ["number"]
        assert [each["name"] for each in said["tableSchema"]["columns"]] == list(numbers_frame(release).columns)
    else:
        said = json.loads(pq.read_schema(tmp_path / "n.parquet").metadata[b"deltahist_export"])
        assert said["columns"]["weight"]["description"].startswith("value counts each point")
    assert release.statement() in json.dumps(said, ensure_ascii=False).replace("\\n", "\n")


def test_other_forms_and_kinds_are_refused(tmp_path):
    release = dh.publish(np.ones(8, dtype=int), dh.Neighbourhood(LINE, 1), "identity", epsilon=1)
    with pytest.raises(InputError, match=r"must be one of \.csv, \.parquet"):
        export_numbers(release, tmp_path / "n.gpkg")
    found = dh.publish_quantile(np.arange(8), 0.5, dh.Neighbourhood(LINE, 1), epsilon=1)
    with pytest.raises(InputError, match="it has no table of numbers"):
        export_numbers(found, tmp_path / "n.csv")
    assert not list(tmp_path.iterdir())
