"""Counts know how they were made, and whoever publishes them cannot forget it."""

import copy
import pickle
import re

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.counting import arrays, points_file
from deltahist.counting.private import Private
from deltahist.counting.steps import count_steps
from deltahist.preprocessing import POINTS, Clock, Preprocessing
from deltahist.publishers.publication import find_preprocessing

SQUARE = dh.Domain((0, 0, 4, 4), (4, 4))
NEAR = dh.Neighbourhood(SQUARE, 1)
PLACES = np.random.default_rng(1).uniform(-1, 5, (60, 2))
IDS = np.arange(60) % 7
KEY = bytes(range(32))


def counted(**how):
    return dh.count(PLACES, SQUARE, **{"outside": "clamp"} | how)


def bounded(**how):
    return counted(user=IDS, max_per_user=3, key=KEY, **how)


def test_counts_act_as_an_array():
    counts = counted()
    plain = np.asarray(counts)
    assert type(plain) is np.ndarray
    assert (counts.dtype, counts.sum(), counts.shape, counts.max()) == (np.int64, 60, (4, 4), plain.max())
    assert counts[1, 2] == plain[1, 2]
    assert (counts + 1 > plain).all()
    assert np.concatenate([counts, counts]).shape == (8, 4)
    np.testing.assert_array_equal(counts, plain)


def test_users_are_bounded_in_memory_as_in_files(tmp_path, monkeypatch):
    pd.DataFrame({"x": PLACES[:, 0], "y": PLACES[:, 1], "who": IDS}).to_parquet(tmp_path / "p.parquet")
    how = {"x": "x", "y": "y", "user": "who", "max_per_user": 3, "key": KEY}
    for outside in ("clamp", "drop"):
        file = dh.count_file(tmp_path / "p.parquet", SQUARE, outside=outside, **how)
        counts = bounded(outside=outside)
        assert np.array_equal(counts, file.counts)
        assert counts.counting == file.counts.counting == file.counting
    whole = bounded()
    assert whole.sum() == 21
    # Users are looked up by the place of their point in all of the data, not in its block.
    monkeypatch.setattr(arrays, "_BLOCK", 16)
    assert (bounded() == whole).all()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"user": IDS}, "give both or neither"),
        ({"max_per_user": 3}, "users are not given"),
        ({"user": IDS[:-1], "max_per_user": 3}, "user has 59 entries"),
        ({"user": np.where(IDS == 2, np.nan, IDS), "max_per_user": 3}, "9 of 60 points have .* or a missing user"),
        ({"user": np.where(IDS == 2, "", IDS.astype(str)), "max_per_user": 3}, "9 of 60 points .* a missing user"),
        ({"user": IDS, "max_per_user": 0}, "max_per_user is 0"),
    ],
)
def test_users_that_cannot_be_bounded(how, words):
    with pytest.raises(dh.InputError, match=words):
        counted(**how)


def test_users_belong_to_their_points():
    frame = pd.DataFrame({"x": PLACES[:, 0], "y": PLACES[:, 1], "who": IDS})
    points, one = frame[["x", "y"]], {"max_per_user": 1, "outside": "clamp"}
    right = dh.count(points, SQUARE, user=frame["who"], key=KEY, **one)
    assert (right == counted(user=IDS, max_per_user=1, key=KEY)).all()
    shuffled = frame["who"].sample(frac=1, random_state=1)
    with pytest.raises(dh.InputError, match="another index than the points"):
        dh.count(points, SQUARE, user=shuffled, **one)
    assert (dh.count(points, SQUARE, user=shuffled.sort_index(), key=KEY, **one) == right).all()
    with pytest.raises(dh.InputError, match="must be a column of the points"):
        dh.count(points, SQUARE, user="who", **one)


# --- publishing ---------------------------------------------------------------------------------------------


def test_publish_takes_provenance_from_the_counts():
    for most in (3, 1):
        release = dh.publish(counted(user=IDS, max_per_user=most), NEAR, dh.strategies.Identity(SQUARE), 1)
        assert (release.contributions, release.counting.unit, release.laws[0].parameter) == (most, "user", most * 2)
    assert "one user, at most 1 point" in release.statement()
    assert "the one kept point of one user" in release.statement()


def test_dropped_points_withdraw_the_total_unasked():
    """`count(outside="drop")` once returned a bare array, whose total was then published exactly."""
    counts = counted(outside="drop")
    assert counts.sum() < 60
    with pytest.raises(dh.InputError, match="the boundary is no source"):
        dh.publish(counts, NEAR, epsilon=1)
    release = dh.publish(counts, dh.Neighbourhood(SQUARE, 1, "boundary"), epsilon=1)
    assert (release.total, release.counting.dropped) == (None, ("points outside",))


def test_more_may_be_said_but_not_less():
    for more in (3, 5):
        assert dh.publish(bounded(), NEAR, epsilon=1, contributions=more).contributions == more
    with pytest.raises(dh.InputError, match="up to 3 points of a user were kept"):
        dh.publish(bounded(), NEAR, epsilon=1, contributions=2)
    near = dh.Neighbourhood(SQUARE, 1, "boundary")
    release = dh.publish(counted(outside="drop"), near, epsilon=1, dropped=["bad rows"])
    assert release.counting.dropped == ("bad rows", "points outside")
    assert dh.publish(bounded(), NEAR, epsilon=1, dropped=["bad rows"]).total is None
    assert find_preprocessing(np.zeros(3), SQUARE, None) == POINTS
    plain = find_preprocessing(np.zeros(3), SQUARE, 4, ["bad rows"])
    assert plain == Preprocessing(4, user=True, dropped=("bad rows",))


def test_counts_know_their_domain():
    wide = dh.Domain((0, 0, 4000, 4000), (4, 4))
    with pytest.raises(dh.InputError, match="lengths would mean something else"):
        dh.publish(counted(), dh.Neighbourhood(wide, 1000), epsilon=1)
    assert dh.publish(np.array(counted()), dh.Neighbourhood(wide, 1000), epsilon=1).total == 60


def test_points_of_a_file_know_it(tmp_path):
    line, short = dh.Domain((0, 10), (100,)), dh.Domain((0, 5), (50,))
    near = dh.Neighbourhood(line, 1)
    (tmp_path / "p.csv").write_text("x,who\n" + "\n".join(f"{i % 10},{i % 4}" for i in range(40)))
    located = points_file(tmp_path / "p.csv", line, x="x", user="who", max_per_user=3)
    assert located.points.counting == Preprocessing(3, user=True)
    release = dh.publish_sorted(located.points, near, 1.0, group=1)
    assert (release.contributions, release.laws[0].parameter) == (3, 3 * near.radius)
    assert dh.quantile(located.points, 0.5, near, 1.0).counting.unit == "user"
    dropped = points_file(tmp_path / "p.csv", short, x="x", outside="drop").points
    with pytest.raises(dh.InputError, match="rows may have been left out"):
        dh.publish_sorted(dropped, dh.Neighbourhood(short, 1), 1.0)
    with pytest.raises(dh.InputError, match="rows may have been left out"):
        dh.quantile(dropped, 0.5, dh.Neighbourhood(short, 1), 1.0)


# --- copies, arithmetic, changes ----------------------------------------------------------------------------

SAME = [
    lambda c: c.copy(), lambda c: c.astype(np.int64), lambda c: c.astype(">i8"),
    lambda c: pickle.loads(pickle.dumps(c)), copy.copy, copy.deepcopy,
]  # fmt: skip


@pytest.mark.parametrize("same", SAME)
def test_copies_know_it_too(same):
    found = same(bounded())
    assert (found.counting, found.domain) == (bounded().counting, SQUARE)
    assert dh.publish(found, NEAR, epsilon=1).contributions == 3


OTHER = [
    lambda c: c + c, lambda c: c + 1, lambda c: 2 * c, lambda c: np.minimum(c, 2), lambda c: np.where(c > 2, c, 0),
    lambda c: np.concatenate([c[:2], c[2:]]), lambda c: np.clip(c, 0, 2), lambda c: c @ np.eye(4, dtype=np.int64),
    lambda c: c.cumsum(axis=0), lambda c: np.stack([c, c]).sum(axis=0),
    # What is taken twice, or elsewhere, is not where it was counted.
    lambda c: c[[0, 0, 0, 0]], lambda c: c[:], lambda c: c.take([1, 1, 1, 1], axis=0),
    lambda c: c.repeat(4).reshape(4, 16)[:, :4], lambda c: c.dot(np.ones((4, 4), dtype=np.int64)),
    lambda c: c.T, lambda c: c.astype(np.int8), lambda c: c.astype(np.float32), lambda c: divmod(c, 2)[0],
    lambda c: np.modf(c)[1], lambda c: np.sort(c, axis=0), np.flip,
]  # fmt: skip


@pytest.mark.parametrize("made", OTHER)
def test_what_arithmetic_makes_is_not_published_unsaid(made):
    """Two maps added up may hold a user twice: the sum knows no bound."""
    with pytest.raises(dh.InputError, match="come from arithmetic"):
        dh.publish(made(bounded()), NEAR, epsilon=1)
    plain = np.resize(np.asarray(made(bounded())), (4, 4))
    assert dh.publish(plain, NEAR, epsilon=1, contributions=6).contributions == 6


def add_to(counts):
    counts += 1


CHANGES = [
    add_to, lambda c: np.add(c, 1, out=c), lambda c: np.add.at(c, 0, 5), lambda c: c.__setitem__(..., 7),
    lambda c: c.__setitem__(c < 3, 0), lambda c: c.fill(7), lambda c: c.put([0], [99]), lambda c: c.sort(),
    lambda c: c.flat.__setitem__(0, 9), lambda c: np.copyto(c, c + c), lambda c: np.put(c, [0], [99]),
    lambda c: add_to(c.view(np.ndarray)), lambda c: add_to(np.asarray(c)), lambda c: add_to(c.reshape(-1)),
    lambda c: setattr(c, "strides", (0, 0)), lambda c: setattr(c, "shape", (2, 8)),
    lambda c: setattr(c, "counting", POINTS), lambda c: c.base.setflags(write=True), lambda c: c.setflags(write=True),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_counts_are_not_changed_in_place(change):
    """Whoever changed them would publish other figures under the old bound."""
    for counts in (bounded(), bounded().copy()):
        before = np.array(counts)
        with pytest.raises(ValueError, match=r"in place|read-only|cannot set WRITEABLE"):
            change(counts)
        assert (np.asarray(counts) == before).all()
        fresh = counts + 0
        fresh += 1
        fresh[0, 0] = 5
        assert (fresh.counting, counts.counting.contributions) == (None, 3)


# --- descriptions and printing ------------------------------------------------------------------------------


def test_a_description_makes_it_again():
    for counting in (POINTS, Preprocessing(1, user=True), Preprocessing(4, dropped=("points outside", "bad rows"))):
        described = {"version": 2, **counting.describe()}
        assert Preprocessing.from_description(described) == counting
        with pytest.raises(dh.InputError, match="damaged"):
            Preprocessing.from_description(described | {"unit": "point", "contributions": 2})
    for how, words in (({"contributions": 0}, "contributions is 0"), ({"dropped": ("rows",)}, "dropped is 'rows'")):
        with pytest.raises(dh.InputError, match=words):
            Preprocessing(**how)


def test_printing_shows_no_figures():
    domain = dh.Domain((0, 0, 2, 2), (2, 2))
    counts = Private.of(np.array([[71, 72], [73, 74]]), Preprocessing(contributions=2, user=True), domain)
    for thing in (counts, counts[0], counts + 1, counts.copy(), counts.sum(axis=0), counts.T, counts[counts > 72]):
        for text in (repr(thing), str(thing), f"{thing}", str([thing]), np.array_repr(thing), np.array2string(thing)):
            assert "private int64 array" in text
            assert not {"71", "72", "73", "74", "144"} & set(re.findall(r"\d+", text))
    assert "array, 2 × 2: Preprocessing(contributions=2, user=True" in repr(counts)
    points = Private.of(np.zeros((57, 2)), Preprocessing(), domain)
    for thing in (points, counts[counts > 72]):  # how many there are is nobody's to see
        assert "array:" in repr(thing)
        assert "57" not in repr(thing)
    assert np.asarray(counts).tolist() == [[71, 72], [73, 74]]


def test_rows_of_a_file_are_not_printed(tmp_path):
    """A notebook prints what its last line returns."""
    (tmp_path / "rows.csv").write_text("x,day\n" + "1.5,0\n" * 57 + "bad,0\n")
    line, how = dh.Domain((0, 8), (8,)), {"x": "x", "drop_bad_rows": True}
    counted = dh.count_file(tmp_path / "rows.csv", line, **how)
    located = points_file(tmp_path / "rows.csv", line, **how)
    stepped = count_steps(tmp_path / "rows.csv", line, Clock.of("0", None), 1, time="day", **how)
    for read in (counted, located, stepped):
        assert (read.rows, read.bad_rows) == (58, 1)
        assert repr(read) == str(read) == f"{type(read).__name__}(private: not shown)"
