"""Colours of estimates for QGIS: pale where they are lost in the noise."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

#: Standard errors of a cell that noise alone rarely makes; classes above; share of the cells that they tell apart.
_CLEAR, _CLASSES, _TOP = 3, 6, 0.9995
#: Points below which a cell is pale however surely it is not empty: where most cells surely are, errors are tiny.
_SPECK = 0.5


def class_edges(estimates: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the edges of classes of colour: three standard errors of a cell, then equal ratios up to the most.

    >>> class_edges(np.array([-3.0, 0.0, 1.0, 192.0]), np.ones(4)).round(6).tolist()
    [-3.0, 3.0, 6.0, 12.0, 24.0, 48.0, 96.0, 192.0]
    """
    noise, top = _CLEAR * float(np.median(errors)), float(np.quantile(estimates, _TOP, method="higher"))
    least, most = float(estimates.min()), float(estimates.max())
    if noise <= 0:  # exact cells: nothing is lost in noise
        noise = top / 2**_CLASSES
    noise = max(noise, _SPECK)
    if top <= noise:
        return np.array([least, max(noise, most)])
    edges = np.geomspace(noise, top, _CLASSES + 1)
    edges[-1] = most
    return np.array([min(least, noise), *edges])


def qgis_style(estimates: NDArray[np.float64], errors: NDArray[np.float64], each: str = "cell") -> str:
    """Return a style for QGIS (.qml, or `layer_styles` of a GeoPackage): cells lost in the noise are pale.

    Parameters
    ----------
    estimates, errors : of all cells; published figures. each : a cell, in words; all else has outlines.
    """
    from matplotlib import colormaps

    edges = class_edges(estimates, errors)
    shades = colormaps["magma_r"](np.linspace(0.05, 0.95, max(len(edges) - 1, 2)))[:, :3]
    root = ElementTree.Element("qgis", version="3.28.0", styleCategories="Symbology")
    kind = {"type": "graduatedSymbol", "attr": "estimate", "graduatedMethod": "GraduatedColor"}
    off = dict.fromkeys(("symbollevels", "enableorderby", "forceraster"), "0")
    renderer = ElementTree.SubElement(root, "renderer-v2", kind | off)
    ranges, symbols = (ElementTree.SubElement(renderer, name) for name in ("ranges", "symbols"))
    for number in range(len(edges) - 1):
        low, high = edges[number : number + 2]
        label = f"{low:,.3g} to {high:,.3g} points"
        if number == 0:
            label = f"below {high:,.3g} points"
            if np.isclose(high, _CLEAR * np.median(errors)):
                label += f": {_CLEAR} standard errors of a {each}"
        limits = {"lower": repr(float(low)), "upper": repr(float(high))}
        ElementTree.SubElement(ranges, "range", limits, symbol=str(number), label=label, render="true")
        symbol = ElementTree.SubElement(
            symbols, "symbol", type="fill", name=str(number), alpha="0.8" if number else "0.3"
        )
        layer = ElementTree.SubElement(symbol, "layer", {"class": "SimpleFill"}, enabled="1", locked="0")
        colour = ",".join(str(round(255 * part)) for part in shades[number]) + ",255"
        properties = {"color": colour, "style": "solid", "outline_style": "no" if each == "cell" else "solid"}
        options = ElementTree.SubElement(layer, "Option", type="Map")
        for name, value in properties.items():
            ElementTree.SubElement(options, "Option", name=name, type="QString", value=value)
    kind_of_file = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n"
    return kind_of_file + ElementTree.tostring(root, encoding="unicode")
