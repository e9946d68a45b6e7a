"""What leaves with a release, to the last key: nothing about the data but the released numbers."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import deltahist as dh

PLANE = dh.Domain((0, 0, 8, 8), (8, 8))
LINE = dh.Domain((0, 8), (16,))

SPACE = {"domain": {"bounds", "shape", "crs", "scale"}, "neighbourhood": {"delta", "sources"}}
COMMON = {
    "format", "version", "epsilon", "rho", "contributions", "unit", "dropped", "projection", "publishable", "account",
    "about", *SPACE,
}  # fmt: skip
#: Kind of result -> every key of its description; no other may appear.
KEYS = {
    "histogram": COMMON | {"strategy", "laws", "groups", "total"},
    "sorted": COMMON | {"number", "group", "law"},
    "quantile": COMMON | {"q", "value", "step", "number", "method"},
}
#: Every key of a strategy's own description.
STRATEGIES = {
    "Identity": set(),
    "Cumulative": {"direction"},
    "Hierarchical": {"branching", "shares"},
    "Wavelet": set(),
    "ShiftedGrids": {"widths", "offsets"},
    "CutAugmented": {"sets"},
    "Flow": {"block", "widths", "shares", "arrivals", "hubs", "hub_widths", "centred", "hub_strips"},
    "Tents": {"spacing", "degree", "shares"},
    "Spectral": {"kernel"},
    "Optimal": {"matrix"},
}


def histograms():
    near, s = dh.Neighbourhood(PLANE, 1), dh.strategies
    pure = (s.Identity, s.Cumulative, s.Hierarchical, s.Wavelet, s.Flow, s.Tents)
    more = s.ShiftedGrids(PLANE, width=2, shift=1), s.CutAugmented(PLANE, ((0, 1), (2,)))
    yield from ((near, strategy, {"epsilon": 1}) for strategy in (*(make(PLANE) for make in pure), *more))
    yield from ((near, make(near), {"rho": 1}) for make in (s.Spectral, s.Optimal))


def data(seed):
    """Two cities that have nothing in common, with as many points."""
    return np.random.default_rng(seed).multinomial(300, np.eye(64)[seed] * 0.9 + 0.1 / 64).reshape(8, 8)


@pytest.mark.parametrize("case", list(histograms()), ids=lambda c: type(c[1]).__name__)
def test_a_histogram_says_nothing_else(case, tmp_path):
    near, strategy, budget = case
    files = []
    for seed in (3, 40):
        release = dh.publish(data(seed), near, strategy, **budget)
        description = release.describe()
        assert set(description) == KEYS["histogram"]
        assert set(description["strategy"]) == {"strategy"} | STRATEGIES[type(strategy).__name__]
        for part, keys in SPACE.items():
            assert set(description[part]) == keys
        files.append(only_the_numbers(release, tmp_path / f"{seed}.parquet", ["group", "value"]))
    assert files[0] == files[1]


def only_the_numbers(release, path, columns):
    """What a file says apart from its released numbers: the description without them, and the file's layout."""
    release.save(path)
    meta, schema = pq.read_metadata(path), pq.read_schema(path)
    assert set(schema.metadata) == {b"deltahist", b"sha256", b"deltahist:readme"}
    assert schema.metadata[b"deltahist:readme"].decode() == release.write_readme()
    assert schema.metadata[b"sha256"].decode() == release.digest
    assert set(meta.metadata) == {b"deltahist", b"sha256", b"deltahist:readme", b"ARROW:schema"}
    assert all(field.metadata is None for field in schema)
    assert schema.names == columns
    assert json.loads(schema.metadata[b"deltahist"]) == json.loads(json.dumps(release.describe()))
    layout = [meta.num_rows, meta.num_row_groups, meta.created_by]
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        for column in range(group.num_columns):
            chunk = group.column(column)
            stats = chunk.statistics
            layout += [chunk.path_in_schema, chunk.physical_type, chunk.compression, chunk.num_values]
            layout += [chunk.has_dictionary_page, stats.null_count, stats.distinct_count]
            # Least and largest are those of the released numbers, which everybody can see.
            values = np.asarray(pq.read_table(path)[chunk.path_in_schema])
            assert (stats.min, stats.max) == (values.min(), values.max())
    return layout, json.dumps(release.describe(), sort_keys=True), release.write_readme()


def test_sorted_points_and_quantiles_say_nothing_else(tmp_path):
    near, said = dh.Neighbourhood(LINE, 0.5), []
    for seed in (1, 2):
        points = np.random.default_rng(seed).beta(seed, 4, 300) * 8
        release = dh.publishers.publish_sorted(points, near, 1.0, group=3)
        assert set(release.describe()) == KEYS["sorted"]
        layout = only_the_numbers(release, tmp_path / f"{seed}.parquet", ["value"])
        for method in ("inverse", "smooth"):
            found = dh.publishers.publish_quantile(points, 0.5, near, epsilon=1, method=method)
            assert set(found.describe()) == KEYS["quantile"]
            found.save(tmp_path / "q.json")
            written = json.loads((tmp_path / "q.json").read_text())
            assert written.pop("sha256") == found.digest
            assert written == found.describe()
            layout += ({key: value for key, value in written.items() if key not in ("step", "value")},)
        said.append(layout)
    assert said[0] == said[1]
