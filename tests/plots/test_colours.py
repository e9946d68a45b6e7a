"""Colours: round classes that tell apart what can be told apart, and scales that a few values do not use up."""

import numpy as np
import pytest

from deltahist.plots.colours import classed_scale, is_dark, smooth_scale


def test_widely_spread_values_are_classed_by_their_size():
    scale = classed_scale(np.array([3.6, 17, 110, 2_400]), width=1.0)
    assert scale.ticks == (0, 3, 10, 30, 100, 300, 1_000)
    assert scale.beyond
    assert scale.grows
    classes = scale.norm([0, 2.9, 3, 9.9, 10, 999, 1_000, 2_400])
    assert classes.tolist() == [0, 0, 1, 1, 2, 5, 7, 7]
    assert scale.colours.N == 7
    assert scale.colours(7) == scale.colours(6)  # what lies beyond has the last colour


@pytest.mark.parametrize("unit", [1e-14, 1.0, 1e12])
def test_the_unit_makes_no_difference(unit):
    scale = classed_scale(np.array([3.6, 17, 110, 2_400]) * unit, width=unit)
    assert np.allclose(np.array(scale.ticks) / unit, [0, 3, 10, 30, 100, 300, 1_000])


@pytest.mark.parametrize(
    ("width", "ticks"), [(1, (0, 480, 485, 490, 495, 500, 505, 510)), (30, (0, 450, 500, 550))]
)
def test_what_cannot_be_told_apart_is_in_one_class(width, ticks):
    assert classed_scale(np.array([481.0, 495, 507]), width).ticks == ticks


def test_few_classes_need_no_dark_colours():
    scale = classed_scale(np.array([481.0, 481.5]), 10)
    assert scale.ticks == (0, 480, 490)
    assert not is_dark(scale.colours(0)[:3])
    assert not is_dark(scale.colours(1)[:3])


def test_a_single_value_has_a_class():
    assert classed_scale(np.array([7.0]), 2.0).ticks == (0, 6, 8)


def test_a_few_cells_do_not_use_up_the_scale():
    values = np.concatenate([np.linspace(0, 100, 9_999), [50_000.0]])
    scale = smooth_scale(values, low=0.0, linear=None, least=1.0)
    assert scale.beyond
    assert scale.ticks[-1] == pytest.approx(100, rel=0.02)
    assert scale.norm(scale.ticks[-1]) == pytest.approx(1)
    even = smooth_scale(np.full(100, 50.0), low=0.0, linear=None, least=1.0)
    assert (even.beyond, even.norm.vmax) == (False, 100)


def test_colours_get_darker_from_pale():
    """Read in grey, too: the brightness falls all the way."""
    scale = smooth_scale(np.linspace(0, 100, 50), low=0.0, linear=None, least=1.0)
    shades = scale.colours(np.linspace(0, 1, 30))[:, :3] @ (0.299, 0.587, 0.114)
    assert (np.diff(shades) < 0).all()
    assert shades[-1] < 0.15
    assert is_dark(scale.colours(1.0)[:3])
