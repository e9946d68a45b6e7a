"""A style for QGIS: cells that stand out from the noise coloured by their estimates, all others pale."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

#: Standard errors of a cell that noise alone rarely makes; classes above; share of the cells that they tell apart.
_CLEAR, _CLASSES, _TOP = 3, 6, 0.9995
#: Points below which a cell is pale however surely it is not empty: where most cells surely are, errors are tiny.
_SPECK = 0.5


def breaks(estimates: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges of the classes: the least, three standard errors of a cell, then in equal ratios up to the most.

    >>> breaks(np.array([-3.0, 0.0, 1.0, 192.0]), np.ones(4)).round(6).tolist()
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


def qml(estimates: NDArray[np.float64], errors: NDArray[np.float64], column: str = "estimate") -> str:
    """The style as QGIS keeps it in a file (.qml) or in a GeoPackage (`layer_styles`).

    Parameters
    ----------
    estimates, errors : of all cells; published figures.
    column : that is coloured.
    """
    from matplotlib import colormaps

    edges = breaks(estimates, errors)
    shades = colormaps["magma_r"](np.linspace(0.05, 0.95, max(len(edges) - 1, 2)))[:, :3]
    root = ElementTree.Element("qgis", version="3.28.0", styleCategories="Symbology")
    renderer = ElementTree.SubElement(
        root,
        "renderer-v2",
        type="graduatedSymbol",
        attr=column,
        graduatedMethod="GraduatedColor",
        symbollevels="0",
        enableorderby="0",
        forceraster="0",
    )
    ranges, symbols = (ElementTree.SubElement(renderer, name) for name in ("ranges", "symbols"))
    for number in range(len(edges) - 1):
        low, high = edges[number : number + 2]
        label = f"{low:,.3g} to {high:,.3g} points"
        if number == 0:
            label = f"below {high:,.3g} points"
            if np.isclose(high, _CLEAR * np.median(errors)):
                label += f": {_CLEAR} standard errors of a cell"
        ElementTree.SubElement(
            ranges,
            "range",
            lower=repr(float(low)),
            upper=repr(float(high)),
            symbol=str(number),
            label=label,
            render="true",
        )
        symbol = ElementTree.SubElement(
            symbols, "symbol", type="fill", name=str(number), alpha="0.8" if number else "0.3"
        )
        layer = ElementTree.SubElement(
            symbol, "layer", attrib={"class": "SimpleFill"}, enabled="1", locked="0"
        )
        colour = ",".join(str(round(255 * part)) for part in shades[number]) + ",255"
        properties = {"color": colour, "style": "solid", "outline_style": "no"}
        options = ElementTree.SubElement(layer, "Option", type="Map")
        for name, value in properties.items():
            ElementTree.SubElement(options, "Option", name=name, type="QString", value=value)
    return "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n" + ElementTree.tostring(
        root, encoding="unicode"
    )
