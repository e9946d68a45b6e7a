"""Files of releases with limits: readers of before must refuse them, and those of now give them back."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from altered import altered_json, write_altered

import deltahist as dh
from deltahist.publishers.state import State

LINE = dh.Domain((0, 12), (12,))
LIMITED = dh.Neighbourhood(LINE, 1, limits=[(3, 1.5), ("any", 3)])
PLAIN = dh.Neighbourhood(LINE, 1)


def kinds(near, folder):
    """A file of each kind of release."""
    values = np.linspace(0.5, 11.5, 40)
    dh.publish(np.arange(12), near, "identity", epsilon=1).save(folder / "map.parquet")
    dh.publish_sorted(values, near, epsilon=1).save(folder / "sorted.parquet")
    dh.publish_quantile(values, 0.5, near, epsilon=1).save(folder / "median.json")
    return [folder / name for name in ("map.parquet", "sorted.parquet", "median.json")]


def described(path):
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    return json.loads(pq.read_schema(path).metadata[b"deltahist"])


def rewritten(path, change):
    """The same file with another description."""
    description = described(path)
    description["neighbourhood"] |= change
    if path.suffix == ".json":
        path.write_text(altered_json(description), encoding="utf-8")
        return
    write_altered(path, pq.read_table(path), description)


def test_limits_come_back(tmp_path):
    for path in kinds(LIMITED, tmp_path):
        assert described(path)["neighbourhood"]["limits"] == [[3, "3/2"], ["any", "3"]]
        release = dh.load(path)
        assert release.neighbourhood == LIMITED
        assert release.mechanism.promise.endswith("at most 1.5 ε up to 3 units, at most 3 ε however far")


@pytest.mark.parametrize("near", [PLAIN, PLAIN.with_limits(())])
def test_files_without_limits_have_none(tmp_path, near):
    for path in kinds(near, tmp_path):
        assert dh.load(path).neighbourhood == near


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"kind": "sigmoid", "steep": 3}, "a profile of a newer version"),
        ([["any", 3]], "a profile of a newer version"),
        ([["any", "3/0"]], "its factors must be fractions"),
        ([["any", "0.5"]], "it must be at least 1"),
        ([[0.5, "2"]], "longer than delta=1"),
        ([[3, "2"], ["any", "1.5"]], "a longer move may not cost less"),
    ],
)
def test_profiles_that_a_reader_does_not_know_are_refused(tmp_path, limits, message):
    for path in kinds(LIMITED, tmp_path):
        rewritten(path, {"limits": limits})
        with pytest.raises(dh.InputError, match=message) as caught:
            dh.load(path)
        assert "limit" in str(caught.value)


def test_a_limit_that_was_altered_contradicts_the_noise(tmp_path):
    near = dh.Neighbourhood(LINE, 1, limits=[("any", 3)])
    A = dh.strategies.Cumulative(LINE)  # any move costs 11
    dh.publish(np.arange(12), near, A, epsilon=1).save(tmp_path / "a.parquet")
    rewritten(tmp_path / "a.parquet", {"limits": [["any", "2"]]})
    with pytest.raises(dh.DamagedFile, match="states noise that does not follow"):
        dh.load(tmp_path / "a.parquet")


def test_a_series_with_two_promises_is_none(tmp_path):
    for day, near in enumerate((LIMITED, LIMITED, PLAIN), start=1):
        dh.publish(np.arange(12), near, "identity", epsilon=1).save(tmp_path / f"2010-05-0{day}.parquet")
    with pytest.raises(dh.InputError, match="differ in neighbourhood"):
        dh.Series.load(tmp_path)
    (tmp_path / "2010-05-03.parquet").unlink()
    assert dh.Series.load(tmp_path).releases.popitem()[1].neighbourhood == LIMITED


def test_a_state_refines_under_the_limits_that_it_began_with(tmp_path):
    A = dh.strategies.Cumulative(LINE)
    release = dh.publish(np.arange(12), LIMITED, A, epsilon=1, state=tmp_path / "line.state")
    assert State.load(tmp_path / "line.state").release.neighbourhood == LIMITED
    finer = dh.refine(release, tmp_path / "line.state", epsilon=2)
    assert finer.neighbourhood == LIMITED
    assert finer.mechanism.any_move == pytest.approx(6)
    finer.save(tmp_path / "finer.parquet")
    assert dh.load(tmp_path / "finer.parquet").neighbourhood == LIMITED
