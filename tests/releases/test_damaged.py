"""Release files changed at random, under a digest of their own: read, or refused as damaged, in little memory."""

import contextlib
import io
import json
import random
import resource

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from altered import write_altered

import deltahist as dh
from deltahist._files import KEY

SQUARE = dh.Neighbourhood(dh.Domain((0, 0, 10, 10), (10, 10)), 1)
LINE = dh.Neighbourhood(dh.Domain((0, 10), (10,)), 1)
RELEASES = {
    "identity": lambda: dh.publish(np.ones((10, 10), int), SQUARE, "identity", epsilon=1),
    "flow": lambda: dh.publish(np.ones((10, 10), int), SQUARE, "flow", epsilon=1),
    "hierarchical": lambda: dh.publish(np.ones((10, 10), int), SQUARE, "hierarchical:2", rho=0.5),
    "sorted": lambda: dh.publishers.publish_sorted(np.arange(10) + 0.5, LINE, 1.0),
}
#: Values that readers trip over.
NASTY = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**30, -0.5, 1e308, float("nan"), float("inf"), "", "1/0", "9" * 5000,
    "1e999999", "\ud800", [], {}, [[]], [0], {"a": 1}, "identity", [1] * 5000,
)  # fmt: skip


def change_json(said, chance):
    """Exchange or leave out one value of what JSON says."""
    where = [(said, None)]
    for holder, _ in where:
        parts = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        where += [(part, (holder, key)) for key, part in parts]
    _, place = chance.choice(where[1:])
    holder, key = place
    if chance.random() < 0.15:
        del holder[key]
    else:
        holder[key] = chance.choice(NASTY)
    return said


def change_table(table, chance):
    """Change the rows or the type of a column."""
    values = table.column(0).to_pylist()
    others = (
        lambda: pa.array([str(v) for v in values]),
        lambda: pa.array([None] * len(values), pa.int64()),
        lambda: pa.array([[v] for v in values]),
        lambda: pa.array([-(2**63)] * len(values)),
    )
    if chance.random() < 0.5:
        return table.set_column(0, table.schema.names[0], chance.choice(others)())
    return chance.choice((table.slice(1), table.slice(0, 0), pa.concat_tables([table] * 20)))


def change(content, chance):
    """Return the bytes of a release file with a change of bits, of the description, or of the table."""
    if chance.random() < 0.3:
        changed = bytearray(content)
        for _ in range(chance.choice((1, 8, 40))):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return bytes(changed[: chance.choice((len(changed), chance.randrange(len(changed))))])
    table = pq.read_table(pa.BufferReader(content))
    description = json.loads(table.schema.metadata[KEY])
    if chance.random() < 0.8:
        description = change_json(description, chance)
    else:
        table = change_table(table, chance)
    write_altered(made := io.BytesIO(), table, description)
    return made.getvalue()


@pytest.mark.parametrize("name", RELEASES)
def test_changed_files_are_read_or_refused(name, tmp_path):
    release, path = RELEASES[name](), tmp_path / "release.parquet"
    release.save(path)
    content = path.read_bytes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for n in range(60):
        path.write_bytes(change(content, random.Random(f"{name} {n}")))
        with contextlib.suppress(dh.InputError):  # anything else is an error of the reader
            found = dh.load(path)
            dh.write_statement(found)
            dh.answer(found, [[0.5, 0.5, 4, 4]] if found.domain.ndim == 2 else [[0.5, 4]])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB
