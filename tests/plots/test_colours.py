"""Colours are told apart by all eyes: by lightness where they say amounts, by any difference where they say kinds."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

import deltahist.server
from deltahist.plots.figures import CATEGORIES, classed_scale

# Machado, Oliveira and Fernandes: A physiologically-based model for simulation of color vision deficiency. IEEE
# Transactions on Visualization and Computer Graphics 15(6), 2009, table at severity 1.0; they take linear RGB.
EYES = {
    "all cones": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# From linear sRGB to XYZ, for white at D65 (IEC 61966-2-1).
_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(colours, eyes):
    """CIELAB (k, 3) of colours as some eyes see them."""
    rgb = np.array([to_rgb(colour) for colour in colours])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    share = np.clip(linear @ np.transpose(EYES[eyes]), 0, 1) @ _XYZ.T / _XYZ.sum(axis=1)
    root = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = root.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


def least_step(colours, eyes):
    """The least fall of lightness from a colour to the next; below zero where one is lighter than the one before."""
    return float(-np.diff(lab(colours, eyes)[:, 0]).max())


def least_distance(colours, eyes):
    """The least distance of two colours (ΔE of 1976)."""
    seen = lab(colours, eyes)
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)
    return float(apart[np.triu_indices(len(seen), 1)].min())


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
    assert least_distance([*CATEGORIES, "0.55"], eyes) > APART  # of the curve: exact, δ, bound


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
