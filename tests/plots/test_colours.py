"""Colours are told apart by all eyes: by lightness where they say amounts, by any difference where they say kinds."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex

import deltahist.server
from deltahist.plots.colours import CATEGORIES, Ends, classed_scale, is_dark
from deltahist.server.pictures import HATCHED, SHADES, Colours
from tests.plots.eyes import EYES, least_distance, least_step

# Lightness runs from 0 to 100; a distance of about 2 is just seen where colours touch.
STEP, APART = 6.0, 15.0
STYLE = (Path(deltahist.server.__file__).parent / "static" / "style.css").read_text()


def classes(largest):
    """The colours of a map of regions whose values are from 1 to some largest."""
    return classed_scale(np.geomspace(1, largest, 50), 0.5).colours.colors[:, :3]


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize(("largest", "number"), [(2, 3), (10, 4), (20, 5), (100, 7)])
def test_classes_of_a_map_differ_in_lightness(largest, number, eyes):
    assert len(classes(largest)) == number
    assert least_step(classes(largest), eyes) > STEP


@pytest.mark.parametrize("name", ["jet", "RdYlGn_r", "turbo", "rainbow"])
def test_rainbows_would_not_do(name):
    assert least_step(colormaps[name](np.linspace(0, 1, 7))[:, :3], "deutan") < STEP


@pytest.mark.parametrize("eyes", EYES)
def test_kinds_are_told_apart_also_from_the_grey_of_other_lines(eyes):
    assert least_distance(CATEGORIES, eyes) > APART
    assert least_distance([*CATEGORIES[:2], "0.55"], eyes) > APART  # of the curve: exact, δ, bound


@pytest.mark.parametrize("colours", [("red", "green"), ("tab:blue", "tab:orange", "tab:green", "tab:red")])
def test_red_beside_green_would_not_do(colours):
    assert min(least_distance(colours, eyes) for eyes in EYES) < APART


@pytest.mark.parametrize("eyes", EYES)
def test_hatches_are_seen_on_every_colour(eyes):
    for colour in classes(100):
        assert least_distance([colour, "0.8" if is_dark(colour) else "0.5"], eyes) > APART
    for signed in (False, True):
        palette = Colours(Ends(1.0, 100.0, 100.0), signed).palette / 255
        for plain, hatched in zip(palette[:SHADES], palette[HATCHED : HATCHED + SHADES], strict=True):
            assert least_distance([plain, hatched], eyes) > 7, (to_hex(plain), to_hex(hatched))


@pytest.mark.parametrize("eyes", EYES)
def test_legends_of_the_service_tell_stops_apart(eyes):
    stops = [colour for _, colour in Colours(Ends(20.0, 1_000.0, 3_000.0), signed=False).stops]
    assert len(stops) > 4
    assert least_step(stops, eyes) > STEP
    signed = [colour for _, colour in Colours(Ends(20.0, 1_000.0, 3_000.0), signed=True).stops]
    middle = len(signed) // 2
    assert least_step(signed[middle:], eyes) > 2  # from the middle to both ends
    assert least_step(signed[middle::-1], eyes) > 2
    assert least_distance([signed[0], signed[-1]], eyes) > APART


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_of_the_page_are_told_apart_by_day_and_by_night(theme, eyes):
    rules = re.findall(r"\{\s*color-scheme: (\w+);(.*?)\}", STYLE, re.S)
    named = dict(re.findall(r"--([\w-]+): (#\w{6});", dict(rules)[theme]))
    bar = re.search(r"#chart \.bar \{ fill: (#\w{6})", STYLE)[1]
    for kinds in (("accent", "pale"), ("accent", "ink"), ("warn", "accent"), ("warn", "pale"), ("accent", "ground")):
        assert least_distance([named[kind] for kind in kinds], eyes) > APART, kinds
    assert least_distance([bar, named["ink"]], eyes) > APART  # bars of a line, and their whiskers
