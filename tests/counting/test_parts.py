"""Folders of Parquet files and object storage: all rows of all parts, or a clear error, and no secret in it."""

import os
import shutil
import time
import traceback

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltahist as dh
from deltahist import _objects
from deltahist.counting import count_file, parts
from deltahist.counting.steps import count_steps
from deltahist.preprocessing import Clock
from tests.storage import SECRET, upload

SQUARE = dh.Domain((0, 0, 10, 10), (10, 10))
XY = {"x": "x", "y": "y"}
DAYS = ["2026-11-01", "2026-11-02", "2026-11-03"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(7)
    places = pd.DataFrame(rng.uniform(-0.02, 10.0, (300, 2)), columns=["x", "y"])
    return places.assign(user=rng.integers(0, 40, 300), name=rng.choice(["ann", "bob"], 300), day=np.repeat(DAYS, 100))


def write(frame, folder):
    """The table in two parts a day, the later ones written first, among what programs leave there."""
    for day in reversed(DAYS):
        (folder / f"day={day}").mkdir(parents=True)
        rows = frame[frame.day == day].drop(columns="day")
        for k in (1, 0):
            rows[k * 50 : (k + 1) * 50].to_parquet(folder / f"day={day}" / f"part-{k}.parquet", index=False)
        (folder / f"day={day}" / ".part-0.parquet.crc").write_bytes(b"crc")
    (folder / "_SUCCESS").touch()
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / "part-9.parquet").write_bytes(b"half-writ")
    return folder


@pytest.fixture
def visits(frame, tmp_path):
    return write(frame, tmp_path / "visits")


@pytest.fixture(params=["folder", "s3"])
def source(request, visits):
    if request.param == "folder":
        return visits
    return upload(visits, request.getfixturevalue("storage"), "data/visits")


def test_parts_are_counted_as_one_table(source, frame):
    places = frame[["x", "y"]].to_numpy()
    np.testing.assert_array_equal(count_file(source, SQUARE, **XY).counts, dh.count(places, SQUARE))
    # Rows come in the order of the parts' paths, whatever the order in which they were written.
    for user in ("user", "name") if str(source).startswith("s3") else ("user",):  # texts are read by another process
        bound = {"max_per_user": 3, "key": bytes(32), "outside": "drop"}
        counted = count_file(source, SQUARE, **XY, user=user, **bound)
        expected = dh.count(places, SQUARE, user=frame[user].to_numpy(), **bound)
        np.testing.assert_array_equal(counted.counts, expected)
        assert counted.users == frame[user].nunique()
        assert SECRET not in repr(counted.counting)
        assert "visits" not in repr(counted.counting)


def test_partitions_are_columns(source, frame):
    chosen = count_file(source, SQUARE, **XY, where="day >= '2026-11-02'")
    np.testing.assert_array_equal(chosen.counts, dh.count(frame[["x", "y"]].to_numpy()[100:], SQUARE))
    stepped = count_steps(source, SQUARE, Clock.of(DAYS[0], "1d"), 3, time="day", **XY)
    for step in range(3):
        places = frame[["x", "y"]].to_numpy()[step * 100 : (step + 1) * 100]
        np.testing.assert_array_equal(stepped.counts(step), dh.count(places, SQUARE))


def test_one_object(visits, frame, storage):
    file = visits / f"day={DAYS[0]}" / "part-0.parquet"
    storage.put("one.parquet", file.read_bytes())
    expected = dh.count(frame[["x", "y"]].to_numpy()[:50], SQUARE)
    np.testing.assert_array_equal(count_file("s3://city/one.parquet", SQUARE, **XY).counts, expected)


def test_values_of_partitions_are_unescaped_and_may_be_missing(tmp_path):
    for k, folder in enumerate(["hour=07", "hour=7%3A30", "hour=__HIVE_DEFAULT_PARTITION__"]):
        (tmp_path / "visits" / folder).mkdir(parents=True)
        pq.write_table(pa.table({"x": [k + 0.5], "y": [0.5]}), tmp_path / "visits" / folder / "a.parquet")
    for where, kept in [("hour = '7:30'", 1), ("hour is null", 1), ("hour = '07'", 1), ("hour <> '07'", 1)]:
        assert count_file(tmp_path / "visits", SQUARE, **XY, where=where).kept == kept, where


def _rewrite(file, table):
    pq.write_table(table, file)


PLACE = pa.table({"x": [1.0], "y": [1.0]})
LAST = f"day={DAYS[2]}/part-1.parquet"
DAMAGES = [
    (lambda f: (f / LAST).write_bytes((f / LAST).read_bytes()[:-9]), r"'visits/day=2026-11-03/part-1.parquet' is no"),
    (lambda f: _rewrite(f / LAST, PLACE), r"'.*03/part-1.*' has other columns than '.*01/part-0.*that has user \(int"),
    (
        lambda f: _rewrite(f / LAST, pq.read_table(f / LAST, partitioning=None).cast(
            pa.schema([("x", pa.float32()), ("y", pa.float64()), ("user", pa.int64()), ("name", pa.large_string())])
        )),
        r"only it has x \(float\)",
    ),
    (lambda f: shutil.copy(f / LAST, f / "loose.parquet"), r"'visits/loose.parquet' lies in partitions of none, but"),
    (lambda f: (f / "more.csv").write_text("x,y\n1,1\n"), r"'visits' is a folder with 'more.csv', which is csv"),
    (lambda f: (f / "way.parquet").symlink_to(f / LAST), r"'visits/way.parquet' is a symbolic link"),
    (lambda f: (f / "away").symlink_to("/tmp"), r"'visits/away' is a symbolic link"),
    (lambda f: os.mkfifo(f / "pipe.parquet"), r"'visits/pipe.parquet' is no file"),
    (lambda f: (f / "_delta_log").mkdir() or (f / "_delta_log/0.json").touch(), r"'visits' is a table of Delta"),
    (lambda f: [p.unlink() for p in f.rglob("*.parquet")], r"'visits' is empty: it holds no Parquet files"),
    (lambda f: (f / "x=1").mkdir() or _rewrite(f / "x=1/a.parquet", PLACE), r"partitions of x, but"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_what_is_no_plain_folder_of_alike_parts_is_refused(visits, damage, message):
    damage(visits)
    with pytest.raises(dh.InputError, match=message):
        count_file(visits, SQUARE, **XY)


def test_a_partition_called_as_a_column_is_refused(tmp_path):
    (tmp_path / "x=1").mkdir()
    _rewrite(tmp_path / "x=1" / "a.parquet", PLACE)
    with pytest.raises(dh.InputError, match=r"column 'x' is in .* and a partition is called so"):
        count_file(tmp_path, SQUARE, **XY)


CHANGES = {
    "another size": lambda file, new: file.write_bytes(new),
    "another time": lambda file, new: os.utime(file, ns=(time.time_ns(), time.time_ns() + 10**9)),
    "another file": lambda file, new: os.replace(shutil.copy2(file, file.with_name("copy")), file),
    "no file": lambda file, new: file.unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("part", [0, 1])
def test_parts_that_change_while_they_are_read_are_noticed(visits, monkeypatch, change, part):
    """The first part changes after it was opened, another before it is."""
    files, opened = sorted(visits.rglob("part-?.parquet")), parts.open_parquet
    files = [file for file in files if "_temporary" not in str(file)]

    def open_and_change(source, reading):
        table = opened(source, reading)
        if source.path == files[0]:
            CHANGES[change](files[part], files[2].read_bytes() + b"PAR1")
        return table

    monkeypatch.setattr(parts, "open_parquet", open_and_change)
    with pytest.raises(dh.InputError, match=rf"part-{part}.parquet' (changed|vanished) while it was read"):
        count_file(visits, SQUARE, **XY)


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path, monkeypatch):
    from deltahist.counting import files

    (tmp_path / "a.csv").write_text("x,y\n1,1\n")
    whole = files.collect

    def slow(batches, *rest, **how):
        (tmp_path / "a.csv").write_text("x,y\n1,1\n2,2\n")
        return whole(batches, *rest, **how)

    monkeypatch.setattr(files, "collect", slow)
    with pytest.raises(dh.InputError, match="changed while it was read"):
        count_file(tmp_path / "a.csv", SQUARE, **XY)


@pytest.mark.parametrize(("user", "content"), [(None, b"another"), ("name", b"another"), (None, None)])
def test_objects_that_change_while_they_are_read_are_noticed(visits, storage, monkeypatch, user, content):
    address, opened = upload(visits, storage, "changing"), parts.open_parquet
    way = f"changing/day={DAYS[0]}/part-0.parquet"

    def open_and_change(source, reading):
        table = opened(source, reading)
        if content is not None:
            storage.put(way, content)
        else:
            storage.delete(way)
        return table

    monkeypatch.setattr(parts, "open_parquet", open_and_change)
    bound = {} if user is None else {"user": user, "max_per_user": 1}
    with pytest.raises(dh.InputError, match=r"part-0.parquet' (changed while|does not exist, or no longer)"):
        count_file(address, SQUARE, **XY, **bound)


ADDRESSES = [
    (f"s3://AKIA:{SECRET}@city/visits", "with a user, a port or options"),
    (f"az://city/visits?sig={SECRET}", "with a user, a port or options"),
    (f"https://example.org/visits.parquet?X-Amz-Signature={SECRET}", "an address that begins with https: it must be"),
    ("s3://city/data/../visits", "without '..'"),
    ("s3://city/nobody", "'s3://city/nobody' does not exist"),
    ("s3://nocity/visits", r"cannot be read from the storage \(GenericError, 404, NoSuchBucket\)"),
]


@pytest.mark.parametrize(("address", "message"), ADDRESSES)
def test_addresses_that_cannot_be_read_show_no_secret(storage, address, message):
    with pytest.raises(dh.InputError, match=message) as caught:
        count_file(address, SQUARE, **XY)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


def test_what_a_storage_says_is_not_passed_on():
    said = Exception(f"GET https://x/?sig={SECRET} - status code: 403 Forbidden: <Code>SignatureDoesNotMatch</Code>"
                     f"<StringToSign>{SECRET}</StringToSign>")  # fmt: skip

    def fail():
        raise said

    with pytest.raises(dh.InputError, match=r"\(Exception, 403, SignatureDoesNotMatch\)") as caught:
        _objects.ask("a", fail)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_without_obstore_an_address_is_refused_with_the_cure(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(dh.InputError, match=r"pip install 'deltahist\[cloud\]'"):
        count_file("gs://city/visits", SQUARE, **XY)
