"""Publishing by tiles: the numbers of the whole map, one file or none, and the account charged once."""

from __future__ import annotations

import numpy as np
import pytest

import deltahist as dh
from deltahist._progress import progress
from deltahist.budget import Budget
from deltahist.counting.sparse import SparseCounts
from deltahist.mechanisms import Mechanism
from deltahist.noise.blocks import BlockDraws
from deltahist.preprocessing import POINTS
from deltahist.publishers import tiles as publisher
from deltahist.space import domain as space
from deltahist.strategies import tiles

DOMAIN = dh.Domain((0, 0, 22, 33), (22, 33))
NEAR = dh.Neighbourhood(DOMAIN, 2)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch) -> None:
    monkeypatch.setattr(space, "MOST_WHOLE", 700)
    monkeypatch.setattr(tiles, "SIDE", 8)


@pytest.fixture
def points() -> np.ndarray:
    return np.random.default_rng(2).random((500, 2)) * (22, 33)


def test_the_file_holds_the_numbers_of_the_whole_map(points, tmp_path, monkeypatch) -> None:
    counts = dh.count(points, DOMAIN)
    release = dh.publish(counts, NEAR, "identity", 1, out=tmp_path / "m.parquet", rng=np.random.default_rng(7))
    draws = BlockDraws(release.laws, np.random.default_rng(7))
    noise = draws(0, 0, DOMAIN.shape, slice(0, 22))
    values = np.zeros(DOMAIN.size, dtype=np.int64)
    for tile in np.ndindex(*release.tiling.shape):
        values[release.tiling.rows(tile)] = release.tile_values(tile)[0].ravel()
    monkeypatch.setattr(space, "MOST_WHOLE", 10_000)
    assert np.array_equal(values.reshape(DOMAIN.shape), np.asarray(dh.count(points, DOMAIN)) + noise)
    assert (release.publishable, release.total) == (False, 500)


@pytest.mark.parametrize("name", ["identity", "flow", "flow:3", "hierarchical", "tents:5,2"])
def test_every_strategy_that_has_tiles_measures_the_whole_map(points, name, tmp_path) -> None:
    counts = dh.count(points, DOMAIN)
    # At this budget no draw is anything but 0.
    release = dh.publish(counts, NEAR, name, 1e6, out=tmp_path / "m.parquet", rng=np.random.default_rng(3))
    values = np.full(release.strategy.shape[0], -1)
    for tile in np.ndindex(*release.tiling.shape):
        found = np.concatenate([layer.ravel() for layer in release.tile_values(tile)])
        values[release.tiling.rows(tile)] = found
    values[release.tiling.top] = release.top
    assert np.array_equal(values, release.strategy.measure(counts.slab(slice(0, 22))))


def test_planning_tries_strategies_that_have_tiles(points, tmp_path) -> None:
    near = dh.Neighbourhood(DOMAIN, 2, limits=[("any", 3)])
    assert {type(each.strategy).__name__ for each in dh.plan(near)} == {"Flow", "Tents", "Identity", "Hierarchical"}
    release = dh.publish(dh.count(points, DOMAIN), near, epsilon=1, out=tmp_path / "m.parquet")
    assert release.strategy.tiling().shape == release.tiling.shape


@pytest.mark.parametrize("kind", ["sparse", "array"])
def test_counts_of_either_kind_are_published(points, kind, tmp_path) -> None:
    counts = dh.count(points, DOMAIN)
    if kind == "array":
        counts = counts.slab(slice(0, 22))
    account = dh.Account.total(epsilon=3, ledger=tmp_path / "city.ledger", name="city")
    release = dh.publish(counts, NEAR, "identity", 1, out=tmp_path / "m.parquet", account=account)
    assert (release.publishable, release.total, account.left) == (True, 500, 2)
    assert str(release.payment) in release.statement()
    assert [each.name for each in tmp_path.glob("*.parquet")] == ["m.parquet"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out": None}, "tile by tile into a file"),
        ({"state": "s.state"}, "without a state"),
        ({"strategy": "wavelet"}, "Wavelet needs all cells at once"),
        ({"out": "none/m.parquet"}, "does not exist"),
        ({"rng": 7}, "rng is 7"),
        ({"epsilon": 4, "weak_protection_accepted": True}, "account 'city'"),
        ({"counts": SparseCounts(np.array([5]), np.array([1 << 52]), DOMAIN, POINTS)}, "at most 2\\^52 points"),
        ({"counts": np.full(DOMAIN.shape, 1 << 42), "strategy": "tents:5,3"}, "more than these tents hold"),
        ({"counts": np.ones(DOMAIN.shape, int), "most": 725}, "that a file holds"),
    ],
)
def test_refusals_cost_nothing_and_leave_nothing(points, options, message, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(publisher, "BlockDraws", None)  # no noise is drawn
    account = dh.Account.total(epsilon=3, ledger=tmp_path / "city.ledger", name="city")
    given = {"counts": dh.count(points, DOMAIN), "strategy": "identity", "epsilon": 1, "out": "m.parquet"} | options
    for name in ("out", "state"):
        if given.get(name):
            given[name] = tmp_path / given[name]
    if most := given.pop("most", None):
        monkeypatch.setattr(space, "MOST_IN_TILES", most)
    with pytest.raises(dh.InputError, match=message):
        dh.publish(given.pop("counts"), NEAR, account=account, **given)
    assert account.left == 3
    assert not list(tmp_path.glob("*m.parquet*"))


def test_counts_of_full_cells_say_how_they_were_made(points, tmp_path, monkeypatch) -> None:
    told = []
    monkeypatch.setattr(publisher, "progress", lambda *of: told.append(of) or progress(*of))
    counts = dh.count(points, DOMAIN, user=np.arange(500) // 5, max_per_user=2, key=bytes(32))
    release = dh.publish(counts, NEAR, "identity", 1, out=tmp_path / "m.parquet")
    assert (release.contributions, release.total) == (2, 200)
    assert told == [("drawing tiles", 3)]  # and nothing of the counts
    mechanism = Mechanism(NEAR, dh.strategies.Identity(DOMAIN), Budget(epsilon=1))
    with pytest.raises(dh.InputError, match="the mechanism is for counts with"):
        dh.publish(counts, mechanism, out=tmp_path / "m.parquet")
    near = dh.Neighbourhood(DOMAIN, 2, "boundary")
    assert dh.publish(counts, near, "identity", 1, out=tmp_path / "m.parquet").total is None
    other = dh.Neighbourhood(dh.Domain((0, 0, 44, 66), (22, 33)), 2)
    with pytest.raises(dh.InputError, match="the data were counted on"):
        dh.publish(counts, other, "identity", 1, out=tmp_path / "m.parquet")


def test_a_map_that_is_held_whole_is_written_to_out_as_well(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(space, "MOST_WHOLE", 10_000)
    release = dh.publish(np.ones(DOMAIN.shape, dtype=int), NEAR, "identity", 1, out=tmp_path / "m.parquet")
    assert isinstance(release, dh.Release)
    assert dh.load(tmp_path / "m.parquet").digest == release.digest
