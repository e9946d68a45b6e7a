"""Write deltahist/server/static/land.json, the land and borders of the web map, from Natural Earth (public domain).

    npm install world-atlas && python tools/land.py node_modules/world-atlas/countries-50m.json

Arcs are lists x, y, dx, dy, dx, dy … in hundredths of a degree. Rings are lists of numbers of arcs, and ~number is an
arc in reverse, as in TopoJSON. Borders are numbers of arcs.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import shapely

TARGET = Path(__file__).parents[1] / "deltahist/server/static/land.json"


def shrink(arc, scale, shift):
    """Return an arc in hundredths of a degree, without points that change it by less than one, as differences."""
    places = np.cumsum(arc, axis=0) * scale + shift
    places = shapely.get_coordinates(shapely.simplify(shapely.linestrings(places), 0.01))
    places = np.round(100 * places).astype(int)
    moved = np.diff(places, axis=0, prepend=[[0, 0]])
    return moved[np.append(True, (moved[1:] != 0).any(axis=1))].ravel().tolist()


def list_rings(shape):
    """Return the rings of a polygon or of several."""
    polygons = [shape["arcs"]] if shape["type"] == "Polygon" else shape.get("arcs", [])
    return [ring for polygon in polygons for ring in polygon]


atlas = json.loads(Path(sys.argv[1]).read_text())
scale, shift = (np.array(atlas["transform"][name]) for name in ("scale", "translate"))
arcs = [shrink(arc, scale, shift) for arc in atlas["arcs"]]
countries, land = (atlas["objects"][name]["geometries"] for name in ("countries", "land"))
uses = Counter(max(arc, ~arc) for shape in countries for ring in list_rings(shape) for arc in ring)
borders = [arc for arc, number in uses.items() if number > 1]
rings = [ring for shape in land for ring in list_rings(shape) if sum(len(arcs[max(arc, ~arc)]) for arc in ring) > 6]
used = sorted({max(arc, ~arc) for ring in [*rings, borders] for arc in ring})
place = {arc: at for at, arc in enumerate(used)} | {~arc: ~at for at, arc in enumerate(used)}
content = {
    "arcs": [arcs[arc] for arc in used],
    "rings": [[place[arc] for arc in ring] for ring in rings],
    "borders": [place[arc] for arc in borders],
}
TARGET.write_text(json.dumps(content, separators=(",", ":")) + "\n")
