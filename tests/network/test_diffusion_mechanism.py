"""What a diffusion promises before there are data: α in lattice steps, errors, the statement, what is refused."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.network.mechanism import snap_to_lattice

NETWORK = dh.Network.from_edges([("ann", "bob"), ("bob", "cem"), ("dia", "eve")])
RNG = np.random.default_rng(1)


def mechanism(alpha=100, columns=("x", "y"), epsilon="exp(3-d)", **more):
    return dh.DiffusionMechanism(NETWORK, epsilon, alpha, columns=columns, **more)


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


def test_levels_are_those_of_the_distances():
    bit = mechanism(None, ("bit",), "1:3,2:1")
    assert bit.find_levels(["ann", "cem"], ["bob", "ann"]).tolist() == [3 * 10**9, 10**9]
    with pytest.raises(dh.InputError):
        bit.find_levels(["ann", "ann"], ["bob", "dia"])
    with pytest.raises(dh.InputError):
        bit.find_levels(["ann"], ["ann"])
    least = mechanism(None, ("bit",), dh.PrivacyLevels("1:3,2:1", least=0.25))
    assert least.find_levels(["ann"], ["dia"]).tolist() == [250_000_000]


def test_the_statement_says_what_is_promised():
    text = mechanism("100m", crs="EPSG:32618").statement([10**9, 5 * 10**9])
    for part in ("100m apart on the ground in each other (α: 1,003 steps of a lattice of 0.1 m)", "exp(3-d)",
                 "hops in a network of 5", "ε from 1 to 5, off by 49.14 to 245.7 m", "99.33071%"):  # fmt: skip
        assert part in text
    bits = mechanism(None, ("ill",)).statement([10**9])
    assert "0 and 1 in each other" in bits
    assert "wrong with a probability of 0.269" in bits
    assert "\nresponses " not in mechanism().statement()


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
