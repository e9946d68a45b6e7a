"""Diffusion: promises before there are data, the same answers however one asks, signals, key files, and bad input."""

import copy
import itertools
import math
import os
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.network.diffusion import open_key
from deltahist.network.mechanism import Signal, snap_to_lattice
from deltahist.noise.paths import VectorPaths

NETWORK = dh.network.Network.from_edges([("ann", "bob"), ("bob", "cem"), ("cem", "dia"), ("eve", "fay")])
PLACES = {"ann": (586_000.0, 4_512_000.25), "bob": (583_500, 4_507_000), "cem": (580_000, 4_500_000)}
PROMISE = dh.network.DiffusionMechanism(NETWORK, "exp(2-d)", 100, columns=("x", "y"))
BITS = dh.network.DiffusionMechanism(NETWORK, "1:3,2:1,3:0.25")


def seeded(data=PLACES, mechanism=PROMISE, seed=1):
    return dh.network.Diffusion(data, mechanism, rng=np.random.default_rng(seed))


@pytest.fixture
def key(tmp_path):
    return tmp_path / "share.key"


def test_answers_that_hardly_protect_anybody_are_refused(key):
    """Above ε = ln 999 a guess can be right in more than 99.9 of 100 cases."""
    weak = dh.network.DiffusionMechanism(NETWORK, "1:7,2:6.9", 100, columns=("x", "y"))
    diffusion = dh.network.Diffusion(PLACES, weak, state=key)
    for ask in (lambda: diffusion.to("bob"), lambda: diffusion.signal("ann", "bob"), diffusion.everything):
        with pytest.raises(dh.InputError, match="weak_protection_accepted"):
            ask()
    assert not key.exists()
    assert diffusion.responses([("ann", "cem")])["epsilon"].tolist() == [6.9]
    accepted = dh.network.Diffusion(PLACES, weak, weak_protection_accepted=True)
    assert accepted.to("bob")["epsilon"].tolist() == [7, 7]


def test_every_way_to_ask_gives_the_same_answer(key):
    diffusion = dh.network.Diffusion(PLACES, PROMISE, state=key)
    everything = diffusion.everything().set_index(["owner", "requester"])
    assert sorted(everything.index) == sorted((o, r) for o in PLACES for r in ("ann", "bob", "cem", "dia") if o != r)
    for (owner, requester), row in everything.iterrows():
        assert diffusion.response(owner, requester).tolist() == [row.x, row.y]
    to = diffusion.to("dia").set_index("owner")
    assert (to[["x", "y"]] == everything.xs("dia", level="requester")[["x", "y"]]).all(axis=None)
    # As a frame, in another order, later, from the key alone.
    again = dh.network.Diffusion(pd.DataFrame(PLACES, index=["x", "y"]).T.iloc[::-1], PROMISE, state=key)
    pairs = pd.DataFrame([("cem", "ann"), ("ann", "dia"), ("cem", "ann")])
    for found in (again.responses(pairs), again.responses(pairs.to_numpy())):
        expected = everything.loc[list(pairs.itertuples(index=False, name=None))].reset_index()
        pd.testing.assert_frame_equal(found, expected)


def test_no_pair_without_a_distance_is_left_out_silently():
    for distance in ("far", -1):
        read = pd.DataFrame([("ann", "bob", 1), ("bob", "cem", distance)])
        diffusion = seeded(mechanism=dh.network.DiffusionMechanism(NETWORK, "exp(2-d)", 100, read, columns=("x", "y")))
        for ask in (lambda d=diffusion: d.to("cem"), diffusion.everything):
            with pytest.raises(dh.InputError, match="distances must be zero or more"):
                ask()


def test_those_who_are_not_connected_are_left_out_or_get_the_least():
    assert seeded().to("eve").empty
    with pytest.raises(dh.InputError):
        seeded().response("ann", "eve")
    far = dh.network.DiffusionMechanism(
        NETWORK, dh.network.PrivacyLevels("exp(2-d)", least=0.01), 100, columns=("x", "y")
    )
    found = seeded(mechanism=far).to("eve")
    assert found["epsilon"].tolist() == [0.01] * 3
    assert len(seeded(mechanism=far).everything()) == 3 * 5


@pytest.mark.parametrize(("data", "mechanism"), [(PLACES, PROMISE), ({"ann": 1, "bob": 0, "cem": True}, BITS)])
def test_signals_agree_with_the_central_answers(data, mechanism):
    diffusion = seeded(data, mechanism)
    signal = diffusion.signal("ann", "bob")
    assert signal.epsilon * 10**9 == mechanism.find_levels(["ann"], ["bob"])[0]
    for requester in ("bob", "cem", "dia"):
        part = signal.to(requester)
        assert part.at(part.epsilon).tolist() == diffusion.response("ann", requester).tolist()
        # What is handed on is what the owner would have handed over.
        assert parts(part) == parts(diffusion.signal("ann", requester))
    assert parts(signal.to("cem").to("dia")) == parts(signal.to("dia"))


def test_a_key_is_made_once_and_kept_from_others(key):
    diffusion = dh.network.Diffusion(PLACES, PROMISE, state=key)
    assert not key.exists()
    first = diffusion.to("dia")
    assert os.stat(key).st_mode & 0o777 == 0o600
    content = key.read_bytes()
    pd.testing.assert_frame_equal(dh.network.Diffusion(PLACES, PROMISE, state=key).to("dia"), first)
    assert key.read_bytes() == content
    assert list(key.parent.iterdir()) == [key]
    # Without a file every object draws a key of its own. A copy, or a forked process, has that of the first.
    one = dh.network.Diffusion(PLACES, PROMISE)
    assert copy.copy(one).to("dia").equals(one.to("dia"))
    assert not one.to("dia").equals(dh.network.Diffusion(PLACES, PROMISE).to("dia"))


def test_a_network_and_its_levels_may_change_under_a_key(key):
    before = dh.network.Diffusion(PLACES, PROMISE, state=key).signal("ann", "bob")
    # Its users stand in another order, too.
    nearer = dh.network.Network.from_edges([("cem", "dia"), ("bob", "cem"), ("ann", "dia")])
    after = dh.network.Diffusion(
        PLACES, dh.network.DiffusionMechanism(nearer, "exp(1-d)", 100, columns=("x", "y")), state=key
    )
    assert after.response("ann", "dia").tolist() == before.at(1).tolist()


CHANGED = {
    "the last place": (PLACES | {"cem": (580_000, 4_500_001)}, PROMISE),
    "another user": ({("fay" if k == "cem" else k): v for k, v in PLACES.items()}, PROMISE),
    "alpha": (PLACES, dh.network.DiffusionMechanism(NETWORK, "exp(2-d)", 101, columns=("x", "y"))),
    "the lattice": (PLACES, dh.network.DiffusionMechanism(NETWORK, "exp(2-d)", 100, columns=("x", "y"), step=0.01)),
    "the unit": (
        {name: (10 * x, 10 * y) for name, (x, y) in PLACES.items()},
        dh.network.DiffusionMechanism(NETWORK, "exp(2-d)", 1000, columns=("x", "y")),
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_key_is_for_its_data_and_parameters(key, what):
    dh.network.Diffusion(PLACES, PROMISE, state=key).to("dia")
    with pytest.raises(dh.InputError, match="for different data, users, α or lattice"):
        dh.network.Diffusion(*CHANGED[what], state=key)


#: A missing name would be the user of that name.
NAMED = dh.network.DiffusionMechanism(
    dh.network.Network.from_edges([("ann", "nan"), ("None", "NaT")]), "exp(2-d)", 100, columns=("x", "y")
)
BAD = [
    ({}, PROMISE),
    ([1, 2], PROMISE),
    ({"ann": ("here", 2)}, PROMISE),
    ({"ann": (math.nan, 2)}, PROMISE),
    ({"ann": np.ma.array([1.0, 2], mask=[False, True])}, PROMISE),
    ({"ann": np.ma.array([1, 2], mask=True)}, PROMISE),
    ({"ann": np.ma.masked}, BITS),
    ({"ann": 1, "bob": np.ma.array([0, 1], mask=[True, False])[0]}, BITS),
    ({"ann": [np.ma.array([1.0, 2], mask=[False, True])], "bob": [(1, 2)]}, PROMISE),
    (pd.Series(np.ma.array([1, 0], mask=[False, True]), index=["ann", "bob"]), BITS),
    *((pd.DataFrame({"x": [1.0, 2], "y": [2.0, 1]}, index=["ann", name]), NAMED) for name in (None, math.nan, pd.NaT)),
    ({"zoe": (1, 2)}, PROMISE),
    ({"ann": (1e15, 2)}, PROMISE),
    (pd.DataFrame({"x": [1.0], "z": [2.0]}, index=["ann"]), PROMISE),
    (pd.DataFrame({"x": [1.0, 2], "y": [2.0, 1]}, index=["ann", "ann"]), PROMISE),
    ({"ann": 2}, BITS),
    (PLACES, dh.network.DiffusionMechanism(NETWORK, "exp(-d)", "100m", columns=("x", "y"), crs="EPSG:27700")),
]
ASKED = [
    lambda d: d.response("ann", "zoe"),
    lambda d: d.response("dia", "ann"),
    lambda d: d.response("ann", "ann"),
    lambda d: d.response("ann", "fay"),
    lambda d: d.signal("dia", "ann"),
]


@pytest.mark.filterwarnings("ignore:.*converting a masked element to nan:UserWarning")
@pytest.mark.parametrize(
    ("data", "mechanism", "ask"),
    [*((data, mechanism, repr) for data, mechanism in BAD), *((PLACES, PROMISE, ask) for ask in ASKED)],
)
def test_bad_data_and_questions_are_refused_and_no_key_is_made(key, data, mechanism, ask):
    with pytest.raises(dh.InputError):
        ask(dh.network.Diffusion(data, mechanism, state=key))
    assert not key.exists()


def test_a_seed_gives_the_same_answers_which_are_not_for_publication(key):
    with pytest.raises(dh.InputError, match="rng is 7"):
        dh.network.Diffusion(PLACES, PROMISE, state=key, rng=7)
    assert not seeded().signal("ann", "bob").publishable
    assert seeded().to("dia").equals(seeded().to("dia"))


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr("deltahist.errors.available_memory", lambda: 0)
    big = lambda needed, what: dh.errors.check_memory(needed << 20, what)  # noqa: E731
    monkeypatch.setattr("deltahist.network.diffusion.check_memory", big)
    with pytest.raises(dh.InputError):
        seeded().everything()


def test_the_nearest_lattice_step_is_exact():
    """0.15 is a little less than it says, 0.25 exactly that: floats alone would round 0.15 / 0.1 up."""
    tenth = Fraction(1, 10)
    assert snap_to_lattice([0.15, 0.25, -0.15, 0.35], tenth).tolist() == [1, 3, -1, 3]
    values = np.random.default_rng(3).integers(-10_000, 10_000, 500) * 0.05
    exact = [math.floor(Fraction(v) / tenth + Fraction(1, 2)) for v in values.tolist()]
    assert snap_to_lattice(values, tenth).tolist() == exact


BOUND = b"parameters and data"


def test_the_key_is_on_the_disk_before_it_is_used(key, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_mode) or fsync(handle))
    drawn = open_key(key, BOUND)
    assert len(synced) == 2  # the file, then its name in the folder
    assert drawn == open_key(key, BOUND) != open_key(key.with_name("other.key"), BOUND)


def test_truncations_and_changes_are_found(key):
    open_key(key, BOUND)
    content = key.read_bytes()
    for end in range(0, len(content), 3):
        key.write_bytes(content[:end])
        with pytest.raises(dh.DamagedFile, match=re.escape(key.name)):
            open_key(key, BOUND)
    for place in range(0, len(content), 3):
        key.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises((dh.DamagedFile, dh.InputError)):
            open_key(key, BOUND)
    key.write_bytes(content + b"more\n")
    with pytest.raises(dh.DamagedFile):
        open_key(key, BOUND)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_key_that_others_can_read_is_refused(key):
    open_key(key, BOUND)
    key.chmod(0o640)
    with pytest.raises(dh.InputError, match=r"mode 640.*chmod 600"):
        open_key(key, BOUND)


AGES = dh.network.DiffusionMechanism(NETWORK, "1:2,2:1", 5, columns=("age",), step=0.5)
SIGNAL = Signal(AGES, "ann", np.array([1, 5 * 10**8, 15 * 10**8]), 2 * 10**9, np.array([[9], [70], [74]]))


def parts(signal):
    return signal.starts.tolist(), signal.most, signal.values.tolist()


def test_a_signal_is_constant_between_its_jumps():
    values = [SIGNAL.at(e)[0] for e in (1e-9, 0.4999, Fraction(1, 2), 1.4999, 1.5, 2)]
    assert values == [4.5, 4.5, 35, 35, 37, 37]
    trimmed = SIGNAL.trim(1.2)  # nothing is left of what was above
    assert parts(trimmed) == ([1, 5 * 10**8], 12 * 10**8, [[9], [70]])
    assert not np.shares_memory(trimmed.values, SIGNAL.values)
    assert not np.shares_memory(trimmed.starts, SIGNAL.starts)
    assert SIGNAL.to("cem").epsilon == 1
    for epsilon, less in ((0.5, 1e-9), (1, 0.2), (1, 0.5), (2, 0.5)):
        once = SIGNAL.trim(less)
        assert parts(SIGNAL.trim(epsilon).trim(less)) == parts(once.trim(less)) == parts(once)
        assert [once.at(level) for level in (1e-9, less)] == [SIGNAL.at(level) for level in (1e-9, less)]
    assert parts(SIGNAL.to("cem").to("bob")) == parts(SIGNAL.to("cem"))  # a signal has no more to pass on
    with pytest.raises(dh.InputError):
        SIGNAL.to("eve")


PAIRS = dh.network.Network.from_edges([("ann", "bob"), ("bob", "cem"), ("dia", "eve")])
RNG = np.random.default_rng(1)


def mechanism(alpha=100, columns=("x", "y"), epsilon="exp(3-d)", **more):
    return dh.network.DiffusionMechanism(PAIRS, epsilon, alpha, columns=columns, **more)


@pytest.mark.parametrize(
    ("alpha", "step", "columns", "reach"),
    [
        (5, 1, ("age",), 5), (5, 2, ("age",), 3), (0.3, 0.1, ("v",), 3), (100, 1, ("x", "y"), 102), (2, 1, "abc", 4),
        (1, Fraction(1, 3), ("v",), 3), (5 + Fraction(1, 10**17), 1, ("age",), 6),  # prints as 5.0
    ],
)  # fmt: skip
def test_alpha_is_rounded_up_to_lattice_steps(alpha, step, columns, reach):
    assert mechanism(alpha, columns, step=step).reach == reach


@pytest.mark.parametrize(("alpha", "step"), [(2.5, 1), (1, 1), (0.7, 0.1), (3, 0.25)])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_data_within_alpha_are_within_reach_on_the_lattice(alpha, step, dimension):
    """Also at the edges of steps, where rounding takes two that are near each other furthest apart."""
    promised = mechanism(alpha, tuple("abc"[:dimension]), step=step)
    edges = (np.arange(-3, 4) + 0.5) * step
    starts = [RNG.uniform(-2, 2, (200, dimension)), np.array(list(itertools.product(edges, repeat=dimension)))]
    for start in starts:
        way = RNG.normal(size=start.shape)
        for direction in (way / np.linalg.norm(way, axis=1)[:, None], np.eye(dimension)[:1]):
            end = start + direction * alpha * (1 - 1e-12)
            moved = snap_to_lattice(end, promised.lattice) - snap_to_lattice(start, promised.lattice)
            assert (np.linalg.norm(moved, axis=1) <= promised.reach).all()


def test_metres_are_ground_metres_over_the_whole_area_of_the_map():
    there = mechanism("100m", crs="EPSG:32618")
    # The zone's largest scale, at its edge on the equator, is 1.00098.
    assert there.reach == math.ceil(1000 * 1.0009813 + math.sqrt(2))
    assert mechanism(100, crs="EPSG:32618").reach == there.reach
    feet = mechanism("100m", crs="EPSG:2263")
    assert 328 < feet.reach * feet.lattice < 329


def test_errors_are_those_of_the_law():
    """√(n(n+1)) α/ε: 2018, theorem 4."""
    found = mechanism(100, step=0.01).rmse([10**9, 4 * 10**9])
    np.testing.assert_allclose(found, [math.sqrt(6) * 100, math.sqrt(6) * 25], rtol=1e-3)
    number = mechanism(5, ("age",), step=1).rmse([10**9])
    np.testing.assert_allclose(number, math.sqrt(50 + 1 / 6))
    np.testing.assert_allclose(mechanism(None, ("bit",)).flip_probability([10**9]), 1 / (1 + math.e))


def test_the_statement_has_the_figures_of_all_levels():
    text = mechanism("100m", crs="EPSG:32618").statement([10**9, 5 * 10**9])
    assert all(part in text for part in ("1,003 steps", "ε from 1 to 5, off by 49.14 to 245.7 m", "99.33071%"))
    assert "wrong with a probability of 0.269" in mechanism(None, ("ill",)).statement([10**9])


@pytest.mark.parametrize(
    "given",
    [
        {"alpha": 0}, {"alpha": "100m"}, {"alpha": 1, "step": 2}, {"alpha": 1e9, "step": 1}, {"columns": ("x", "x")},
        {"columns": ("epsilon",)}, {"alpha": None}, {"crs": "EPSG:4326"}, {"columns": ("x",), "crs": "EPSG:32618"},
        {"crs": "+proj=utm +zone=18 +units=m"},
    ],
)  # fmt: skip
def test_what_cannot_be_promised_is_refused(given):
    with pytest.raises(dh.InputError):
        mechanism(**given)


def test_one_answer_has_planar_laplace_noise():
    """docs/internals/metric-privacy.md. Six standard deviations of a share: a false alarm in a thousand million."""
    noise = VectorPaths(bytes(32), dimension=2, reach=1000).at(np.arange(20_000), np.full(20_000, 10**9))
    for radius, share in ((1.678, 0.5), (3.890, 0.9), (4.744, 0.95)):
        within = (np.hypot(*noise.T) <= 1000 * radius).mean()
        assert within == pytest.approx(
            1 - (1 + radius) * math.exp(-radius), abs=6 * (share * (1 - share) / 20_000) ** 0.5
        )
        assert within == pytest.approx(share, abs=0.022)
