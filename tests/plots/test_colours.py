"""Colours are told apart by all eyes: by lightness where they say amounts, by any difference where they say kinds."""

import re
from pathlib import Path

import numpy as np
import pytest

import deltahist.server
from deltahist.plots.ground import CATEGORIES, classed_scale
from tests.plots.eyes import EYES, least_distance, least_step

# Lightness runs from 0 to 100; a distance of about 2 is just seen where colours touch.
STEP, APART = 6.0, 15.0
STYLE = (Path(deltahist.server.__file__).parent / "static" / "style.css").read_text()


def classes(largest):
    """The colours of a map of regions whose values are from 1 to some largest."""
    return classed_scale(np.geomspace(1, largest, 50)).colours.colors[:, :3]


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize(("largest", "number"), [(2, 6), (100, 7)])
def test_classes_of_a_map_differ_in_lightness(largest, number, eyes):
    assert len(classes(largest)) == number
    assert least_step(classes(largest), eyes) > STEP


@pytest.mark.parametrize("eyes", EYES)
def test_kinds_are_told_apart_also_from_the_grey_of_other_lines(eyes):
    assert least_distance(CATEGORIES, eyes) > APART
    assert least_distance([*CATEGORIES[:2], "0.55"], eyes) > APART  # of the curve: exact, δ, bound


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_of_the_page_are_told_apart_by_day_and_by_night(theme, eyes):
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", STYLE)
    named = {name: dark if theme == "dark" else light for name, light, dark in pairs}
    for kinds in (("accent", "pale"), ("accent", "ink"), ("warn", "accent"), ("warn", "pale"), ("accent", "ground")):
        assert least_distance([named[kind] for kind in kinds], eyes) > APART, kinds


@pytest.mark.parametrize("unit", [1e-14, 1.0, 1e12])
def test_widely_spread_values_are_classed_by_their_size(unit):
    scale = classed_scale(np.array([3.6, 17, 110, 2_400]) * unit)
    assert np.allclose(np.array(scale.ticks) / unit, [0, 3, 10, 30, 100, 300, 1_000])
    assert scale.beyond
    classes = scale.norm(np.array([0, 2.9, 3.1, 9.9, 11, 999, 1_001, 2_400]) * unit)
    assert classes.tolist() == [0, 0, 1, 1, 2, 5, 7, 7]
