"""Tables of Delta and Iceberg: the rows of one version as NumPy counts them, or a clear error."""

import datetime
import json
import os
import shutil
import sys
import traceback

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.counting import count_file, files as reader, lakes as reading
from deltahist.counting.steps import count_steps
from deltahist.preprocessing import Clock
from tests import lake_tables as lakes
from tests.storage import SECRET, upload

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

SQUARE = dh.Domain((0, 0, 10, 10), (10, 10))
XY = {"x": "x", "y": "y"}
DAYS = [datetime.date(2026, 11, day) for day in (1, 2, 3)]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(11)
    places = pd.DataFrame(rng.uniform(-0.02, 10.0, (300, 2)), columns=["x", "y"])
    names = rng.choice(["ann", "bob", "cy"], 300)
    return places.assign(user=rng.integers(0, 40, 300), name=names, day=np.repeat(DAYS, 100))


def arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


def write_delta(frame, folder):
    """Two versions with other columns, of which the second deletes rows; the files of the first are still there."""
    warehouse = folder.with_name("warehouse")
    deltalake.write_deltalake(warehouse, arrow(frame[:150].drop(columns="name")), partition_by=["day"])
    later = arrow(frame[150:])
    deltalake.write_deltalake(warehouse, later, partition_by=["day"], mode="append", schema_mode="merge")
    deltalake.DeltaTable(warehouse).delete("user = 7")
    return warehouse.rename(folder)


def write_iceberg(frame, folder):
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import StringType

    first = arrow(frame.drop(columns="name")).schema
    table = lakes.iceberg_catalog(folder.with_name("warehouse")).create_table("n.visits", schema=first)
    with table.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
    table.append(arrow(frame[:150].drop(columns="name")))
    with table.update_schema() as schema:
        schema.add_column("name", StringType())
    table.append(arrow(frame[150:]))
    table.delete("user = 7")
    return lakes.hint(table).rename(folder)  # its metadata name the old place


WRITERS = {"delta": write_delta, "iceberg": write_iceberg}


@pytest.fixture(params=WRITERS)
def visits(request, frame, tmp_path):
    return WRITERS[request.param](frame, tmp_path / "visits #1?")


def test_a_version_is_counted_as_its_points(visits, frame, monkeypatch):
    """Partitions, columns that came later, rows that were deleted; a commit in between changes nothing."""
    left, opened = frame[frame.user != 7], reading.open_parquet

    def open_and_commit(source, how):
        if (visits / "_delta_log").exists():
            deltalake.DeltaTable(visits.as_uri()).delete()
        return opened(source, how)

    monkeypatch.setattr(reading, "open_parquet", open_and_commit)
    counted = count_file(visits, SQUARE, **XY)
    assert counted.kept == len(left)
    np.testing.assert_array_equal(counted.counts, dh.count(left[["x", "y"]].to_numpy(), SQUARE))


def test_users_conditions_and_steps_of_a_version(visits, frame):
    left = frame[frame.user != 7]
    bound = {"max_per_user": 100, "outside": "drop"}
    users = count_file(visits, SQUARE, **XY, user="user", **bound)
    assert users.users == left.user.nunique()
    np.testing.assert_array_equal(users.counts, dh.count(left[["x", "y"]].to_numpy(), SQUARE, outside="drop"))
    chosen = count_file(visits, SQUARE, **XY, where="day >= '2026-11-02' and user < 20")
    expected = left[(left.day >= DAYS[1]) & (left.user < 20)]
    np.testing.assert_array_equal(chosen.counts, dh.count(expected[["x", "y"]].to_numpy(), SQUARE))
    stepped = count_steps(visits, SQUARE, Clock.of("2026-11-01", "1d"), 3, time="day", **XY)
    for step, day in enumerate(DAYS):
        places = left[left.day == day][["x", "y"]].to_numpy()
        np.testing.assert_array_equal(stepped.counts(step), dh.count(places, SQUARE))
    # Older files have no names: there they are missing.
    named = count_file(visits, SQUARE, **XY, where="name is null or name = 'bob'")
    assert named.kept == ((left.index < 150) | (left.name == "bob")).sum()


def xy(n, start=0.0, names=("x", "y")):
    places = np.arange(n) % 10 + 0.5
    return pa.table({names[0]: places + start, names[1]: places})


def test_a_delta_table_with_mapped_columns_and_deletion_vectors(tmp_path, monkeypatch):
    """The names in files are the first ones; a column that was dropped and added again is another one."""
    columns = [("x", "double", "a"), ("y", "double", "y"), ("day", "date", "p"), ("speed", "long", "new")]
    older = xy(6, names=("a", "y")).append_column("speed", pa.array(range(6)))
    newer = xy(4, names=("a", "y")).append_column("new", pa.array(range(4), pa.int32()))
    newer = newer.append_column("p", pa.array([DAYS[2]] * 4))  # the log holds, which says that there is none
    escaped = {"path": "p=1/a%252Fb.parquet", "partitionValues": {"p": "2026-11-01"}}
    files = [
        ("p=1/a%2Fb.parquet", older, escaped | lakes.deletion_vector([0, 2])),
        ("b.parquet", newer, {"partitionValues": {"p": None}}),
    ]
    table = lakes.write_delta(tmp_path / "t", columns, files, mode="name", partitions=["day"])
    monkeypatch.setattr(reader, "CHUNK", 2)  # in batches of two rows
    kept = [1.5, 3.5, 4.5, 5.5, 0.5, 1.5, 2.5, 3.5]
    np.testing.assert_array_equal(count_file(table, SQUARE, **XY).counts, dh.count(np.c_[kept, kept], SQUARE))
    for where, rows in [("speed >= 2", 2), ("speed is null", 4), ("day = '2026-11-01'", 4), ("day is null", 4)]:
        assert count_file(table, SQUARE, **XY, where=where).kept == rows, where


def test_a_delta_table_whose_columns_are_known_by_numbers(tmp_path):
    columns = [("x", "double", "u"), ("y", "double", "v")]
    swapped = lakes.numbered(xy(3, 3.0), 2, 1)  # what the file calls x is the table's y
    table = lakes.write_delta(tmp_path / "t", columns, [("a.parquet", swapped, {})], mode="id")
    expected = dh.count(swapped.to_pandas()[["y", "x"]].to_numpy(), SQUARE)
    np.testing.assert_array_equal(count_file(table, SQUARE, **XY).counts, expected)
    pq.write_table(xy(3), table / "a.parquet")
    with pytest.raises(dh.InputError, match=r"'t/a.parquet' (has no numbers of columns|has .* bytes)"):
        count_file(table, SQUARE, **XY)


@pytest.fixture
def renamed(tmp_path):
    """An Iceberg table of two files of six rows; columns were renamed, widened, dropped and added in between."""
    from pyiceberg.types import LongType

    first = xy(6).append_column("n", pa.array(range(6), pa.int32())).append_column("old", pa.array(["a"] * 6))
    table = lakes.iceberg_catalog(tmp_path / "w").create_table("n.t", schema=first.schema)
    table.append(first)
    for was, now in [("x", "was"), ("y", "x"), ("was", "y")]:
        with table.update_schema() as schema:
            schema.rename_column(was, now)
    with table.update_schema() as schema:
        schema.update_column("n", LongType())
        schema.delete_column("old")
    with table.update_schema() as schema:
        schema.add_column("old", LongType())
    old = pa.array([1, 2, 3, None, None, None], pa.int64())
    second = pa.table({"y": [0.5] * 6, "x": [9.5] * 6, "n": [2**40] * 6, "old": old})
    table.append(second)
    return table


def data_files(table):
    """The locations of its files, in order of writing."""
    written = table.inspect.files().to_pylist()
    ages = {entry["data_file"]["file_path"]: entry["sequence_number"] for entry in table.inspect.entries().to_pylist()}
    return sorted((file["file_path"] for file in written), key=ages.get)


def test_columns_of_iceberg_are_known_by_numbers(renamed):
    folder = lakes.hint(renamed)
    places = np.r_[np.c_[np.arange(6) + 0.5, np.arange(6) + 0.5], [[9.5, 0.5]] * 6]
    np.testing.assert_array_equal(count_file(folder, SQUARE, **XY).counts, dh.count(places, SQUARE))
    for where, rows in [("old is null", 9), ("old = 2", 1), ("n > 5", 6), ("n <= 3", 4)]:
        assert count_file(folder, SQUARE, **XY, where=where).kept == rows, where
    users = count_file(folder, SQUARE, **XY, user="n", max_per_user=9)
    assert users.users == 7


@pytest.mark.parametrize("kind", ["positions", "puffin"])
def test_rows_that_iceberg_deleted_by_files_are_not_counted(renamed, kind):
    old, new = data_files(renamed)
    cases = [({new: [0, 3]}, "old is null", 8), ({old: [5, 1], new: range(6)}, "n in (0, 1, 5)", 1)]
    for deleted, where, rows in cases:
        version = lakes.delete_by_files(renamed, deleted, kind)
        assert count_file(version, SQUARE, **XY).kept == 12 - sum(map(len, deleted.values()))
        assert count_file(version, SQUARE, **XY, where=where).kept == rows
    with pytest.raises(dh.InputError, match="does not yet support equality deletes"):
        count_file(lakes.delete_by_files(renamed, {old: [1]}, "equality"), SQUARE, **XY)


@pytest.fixture(params=["s3", "gs"])
def address(request, visits, storage, tmp_path, monkeypatch):
    """A table in a bucket, which Google's protocol reads, too: it is that of S3 but for the keys."""
    boto3 = pytest.importorskip("boto3")
    found = upload(visits, storage, f"{request.param}-{visits.parent.name}")
    if request.param == "s3":
        return found
    place = os.environ["AWS_ENDPOINT_URL"]
    client, key = boto3.client("s3", endpoint_url=place), found.removeprefix("s3://city/")
    for each in client.list_objects_v2(Bucket="city", Prefix=key)["Contents"]:
        client.put_object_acl(Bucket="city", Key=each["Key"], ACL="public-read")
    account = dict.fromkeys(["client_email", "private_key", "private_key_id"], "")
    account |= {"gcs_base_url": place, "disable_oauth": True}
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "account.json"))
    return found.replace("s3://", "gs://")


def test_versions_in_object_storage(address, visits, frame):
    """The name of the metadata of Iceberg will do, too."""
    left = frame[frame.user != 7]
    expected = dh.count(left[["x", "y"]].to_numpy(), SQUARE)
    metadata = max(visits.glob("metadata/*.metadata.json"), default=None)
    for source in [address, *([f"{address}/metadata/{metadata.name}"] if metadata else [])]:
        np.testing.assert_array_equal(count_file(source, SQUARE, **XY).counts, expected)


def test_what_is_said_of_object_storage_shows_no_secret(visits, storage, monkeypatch):
    """Neither of a wrong key nor of a log that cannot be read."""
    address = upload(visits, storage, f"damaged-{visits.parent.name}")
    log = "_delta_log/00000000000000000000.json" if (visits / "_delta_log").exists() else "metadata/version-hint.text"
    key = address.removeprefix("s3://city/")
    storage.put(f"{key}/{log}", SECRET.encode())
    with pytest.raises(dh.InputError) as caught:
        count_file(address, SQUARE, **XY)
    if metadata := max(visits.glob("metadata/*.metadata.json"), default=None):
        storage.put(f"{key}/metadata/{metadata.name}", metadata.read_bytes().replace(b"/metadata/snap-", b"/../snap-"))
        with pytest.raises(dh.InputError, match="with files outside its folder"):
            count_file(f"{address}/metadata/{metadata.name}", SQUARE, **XY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:9/{SECRET}")
    with pytest.raises(dh.InputError, match="cannot be read from the storage") as unreached:
        count_file(address, SQUARE, **XY)
    for each in (caught, unreached):
        assert SECRET not in "".join(traceback.format_exception(each.value))


# --- faults ---------------------------------------------------------------------------------------------------


#: What happens to a file, when (before or while the version is read), and what is said of it.
FAULTS = {
    "vacuumed": (lambda file: file.unlink(), "before", "is missing, though"),
    "cut short": (lambda file: os.truncate(file, 99), "before", "it was replaced, or cut short"),
    "other rows": (lambda file: _other_rows(file), "before", "by the table's own account"),
    "a partition is gone": (lambda file: shutil.rmtree(file.parent), "before", "is missing, though"),
    "gone": (lambda file: file.unlink(), "while", "vanished while it was read"),
    "changed": (lambda file: file.write_bytes(bytes(file.stat().st_size)), "while", "changed while it was read"),
}


def _other_rows(file):
    """Put there a file of as many bytes, and one row."""
    size, row = file.stat().st_size, pq.ParquetFile(file).read()[:1]
    for fill in range(size):
        padded = row.append_column("pad", pa.array(["-" * fill]))
        pq.write_table(padded, file, use_dictionary=False, write_statistics=False, compression="none")
        if file.stat().st_size == size:
            return
    raise AssertionError(size)


@pytest.mark.parametrize("fault", FAULTS)
def test_files_that_are_not_as_they_were_committed(visits, tmp_path, monkeypatch, capsys, fault):
    """Nothing is charged, and nothing written; the file is named."""
    damage, when, message = FAULTS[fault]
    found, opened = [], reading.open_parquet
    with monkeypatch.context() as patch:
        patch.setattr(reading, "open_parquet", lambda source, how: found.append(source.path) or opened(source, how))
        count_file(visits, SQUARE, **XY)
    file = found[0]
    ledger, out = dh.Ledger(tmp_path / "city.ledger"), tmp_path / "city.parquet"
    ledger.open("city", epsilon=1)

    def open_and_damage(source, how):
        table = opened(source, how)
        if source.path == file:
            damage(file)
        return table

    if when == "while":
        monkeypatch.setattr(reading, "open_parquet", open_and_damage)
    else:
        damage(file)
    line = "--x x --y y --bounds 0,0,10,10 --cell 1 --delta 1 --epsilon 1 --outside clamp"
    line += f" --out {out} --ledger {tmp_path / 'city.ledger'} --account city"
    said = main(["publish", str(visits), *line.split()])
    error = " ".join(capsys.readouterr().err.split())
    assert said == 2, error
    assert message in error
    assert file.name in error.replace(" ", "")
    assert ledger.charges("city") == {}
    assert not out.exists()


# --- what is refused, by name -----------------------------------------------------------------------------------

COLUMNS = [("x", "double", "x"), ("y", "double", "y")]


def delta(folder, columns=COLUMNS, table=None, entry=None, **how):
    files = [("a.parquet", xy(3) if table is None else table, entry or {})]
    return lakes.write_delta(folder / "t", columns, files, **how)


def delta_and_iceberg(folder):
    (delta(folder) / "metadata").mkdir()
    (folder / "t/metadata/v1.metadata.json").touch()
    return folder / "t"


def damaged_iceberg(folder):
    (folder / "t/metadata").mkdir(parents=True)
    (folder / "t/metadata/v1.metadata.json").write_text("{}")
    return folder / "t"


def linked_log(folder):
    (delta(folder) / "_delta_log").rename(folder / "log")
    (folder / "t/_delta_log").symlink_to(folder / "log")
    return folder / "t"


REFUSED = [
    (lambda f: delta(f, features=["variantShredding"]), "whose readers must know variantShredding"),
    (lambda f: delta(f, features=["catalogManaged"]), "'t' is a table of Delta that cannot be read"),
    (lambda f: delta(f, features=[], mode="name"), "does not ask readers to know that"),
    (lambda f: delta(f, mode="id"), "'t/a.parquet' has no numbers of columns"),
    (lambda f: delta(f, entry={"path": "file:///etc/a.parquet"}), "with files outside its folder"),
    (lambda f: delta(f, entry={"path": "../t/a.parquet"}), "'t/../t/a.parquet' is missing"),
    (lambda f: delta(f, table=xy(3, names=("X", "y"))), "'t/a.parquet' has a column 'X', and the table one 'x'"),
    (lambda f: delta(f, [("x", "integer", "x"), COLUMNS[1]]), "has column 'x' as double, which the table has as int32"),
    (lambda f: delta(f, [("x", "float", "x"), COLUMNS[1]]), "has column 'x' as double, which the table has as float"),
    (lambda f: delta(f, entry={"stats": '{"numRecords": 9}'}), "'t/a.parquet' has 3 rows, and other ones by the"),
    (lambda f: delta(f / "a%20b"), "with % in its path"),
    (lambda f: delta(f).parent, "holds a table of Delta .*: name that table's own folder"),
    (linked_log, "'t/_delta_log' is a symbolic link"),
    (delta_and_iceberg, "both Delta and Iceberg"),
    (damaged_iceberg, "'t' is a table of Iceberg that cannot be read"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_might_be_counted_wrongly_is_refused(tmp_path, make, message):
    with pytest.raises(dh.InputError, match=message):
        count_file(make(tmp_path), SQUARE, **XY)


def test_which_version_of_iceberg_is_the_newest(renamed):
    """A hint may be behind; without one only the catalog knows."""
    folder, newest = lakes.metadata_of(renamed)
    with pytest.raises(dh.InputError, match=r"of 8 versions, and only its catalog knows .* such as 't/metadata/0000"):
        count_file(folder, SQUARE, **XY)
    versions = sorted(newest.parent.glob("*.metadata.json"))
    for number in (1, 2):
        shutil.copy(versions[1 if number == 1 else -1], newest.with_name(f"v{number}.metadata.json"))
    (newest.parent / "version-hint.text").write_text("1")
    assert count_file(folder, SQUARE, **XY).kept == 12
    (newest.parent / "version-hint.text").write_text("5")
    with pytest.raises(dh.InputError, match=r"version-hint.text' names a version whose metadata are missing"):
        count_file(folder, SQUARE, **XY)
    assert count_file(versions[1], SQUARE, **XY).kept == 6
    said = newest.read_text()
    newest.write_text(said.replace(f'"location":"{renamed.location()}"', '"location":"file:///elsewhere"'))
    with pytest.raises(dh.InputError, match="with files outside its folder: 'file:///"):
        count_file(newest, SQUARE, **XY)


def test_a_version_without_files_is_one_of_no_points(tmp_path):
    table = lakes.write_delta(tmp_path / "t", COLUMNS, [])
    assert count_file(table, SQUARE, **XY, outside="clamp").kept == 0


@pytest.mark.parametrize("module", ["deltalake", "pyiceberg.transforms"])
def test_without_its_package_a_table_is_refused_with_the_cure(tmp_path, monkeypatch, module):
    table = delta(tmp_path)
    if module != "deltalake":
        (table / "_delta_log").rename(table / "metadata")
        (table / "metadata" / "v1.metadata.json").touch()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(dh.InputError, match=r"pip install 'deltahist\[lake\]'"):
        count_file(table, SQUARE, **XY)
