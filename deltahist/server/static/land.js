// What lies around a release: land and borders at small scales, and lines of the operator's own file.

import * as L from "./leaflet/leaflet-src.esm.js";
import { get } from "./api.js";

// 95% of the coast is within 3 km of a finer one, which is 2.4 pixels at zoom 7 and 9.5 at zoom 9 on the equator.
const [FULL, NONE] = [7, 9];
const files = new Map(); // each is loaded once
const load = (name) => files.get(name) ?? files.set(name, get(`static/${name}`)).get(name);

export class Land {
  constructor({ map, element }) {
    Object.assign(this, { map, element, layers: L.layerGroup() });
    map.on("zoom zoomend moveend", () => this.fade());
  }

  fade() {
    const far = Math.min(1, Math.max(0, (NONE - this.map.getZoom()) / (NONE - FULL)));
    this.element.style.setProperty("--far", far);
    if (!far) this.layers.remove();
    else if (!this.map.hasLayer(this.layers)) this.draw();
  }

  async draw() {
    this.layers.addTo(this.map);
    if (this.layers.getLayers().length || this.loading) return;
    this.loading = true;
    const { arcs, rings, borders } = await load("land.json");
    const lines = arcs.map(decodeArc);
    const join = (numbers) => unwrap(numbers.flatMap((at) => (at < 0 ? lines[~at].toReversed() : lines[at])));
    const around = this.map.options.maxBounds;
    for (let turn = -360; turn <= 360; turn += 360) { // as far as the map can be moved
      if (around.getEast() < turn - 200 || around.getWest() > turn + 200) continue;
      const place = ([x, y]) => [y / 100, x / 100 + turn];
      const options = { pane: "land", interactive: false };
      L.polygon(rings.map((ring) => join(ring).map(place)), { ...options, className: "land" }).addTo(this.layers);
      L.polyline(borders.map((border) => join([border]).map(place)), { ...options, className: "border" }).addTo(this.layers);
    }
  }
}

// Decode an arc, stored as its first point and the steps between its points.
function decodeArc(arc) {
  let [x, y] = [0, 0];
  const places = [];
  for (let at = 0; at < arc.length; at += 2) places.push([x += arc[at], y += arc[at + 1]]);
  return places;
}

// Continue a line beyond 180° of longitude instead of jumping to the other side, and a ring around the south pole to it.
function unwrap(line) {
  let shift = 0;
  const places = line.map(([x, y], at) => {
    if (at) shift += 36000 * Math.round((line[at - 1][0] - x) / 36000);
    return [x + shift, y];
  });
  const [first, last] = [places[0][0], places.at(-1)[0]];
  return Math.abs(last - first) < 36000 ? places : [...places, [last, -9000], [first, -9000]];
}

// Draw the operator's lines over the densities. `place` turns coordinates into places on the map.
export async function drawContext(map, place) {
  const lines = await load("context.json");
  const renderer = L.canvas({ pane: "context", padding: 0.15 });
  const style = { color: "#808080", weight: 0.9, opacity: 0.5 };
  return L.geoJSON(lines, { renderer, pane: "context", interactive: false, coordsToLatLng: place, style }).addTo(map);
}
