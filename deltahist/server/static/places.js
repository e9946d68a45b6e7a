// Names of places on the map: the most populous first, as many as there is room for.

import * as L from "./leaflet/leaflet-src.esm.js";
import { get } from "./api.js";
import { make } from "./dom.js";

const ruler = document.createElement("canvas").getContext("2d");

export class Places {
  constructor(map) {
    Object.assign(this, { map, names: L.layerGroup().addTo(map), covered: null, turn: 0 });
    map.on("moveend", () => this.load());
  }

  // Names move along with the map, so they are loaded only where there are none yet.
  async load() {
    const { map } = this;
    const zoom = map.getZoom();
    if (this.covered?.zoom === zoom && this.covered.box.contains(map.getBounds())) return;
    const turn = this.turn += 1;
    const box = map.getBounds().pad(0.5);
    const sides = [box.getWest(), box.getSouth(), box.getEast(), box.getNorth()];
    const bbox = sides.map((side) => side.toFixed(4)).join(",");
    const found = await get("static/places.json", { bbox }).catch(() => []); // a map without names is of use too
    if (turn !== this.turn) return; // a later call has replaced this one
    this.covered = { zoom, box };
    this.draw(found);
  }

  draw(found) {
    this.names.clearLayers();
    const family = getComputedStyle(this.map.getContainer()).fontFamily;
    const taken = [];
    for (const { name, x, y, population } of found) {
      const [size, weight] = population >= 1e6 ? [15, 600] : population >= 1e5 ? [13, 600] : [12, 450];
      ruler.font = `${weight} ${size}px ${family}`;
      const at = this.map.latLngToLayerPoint([y, x]);
      const own = [at.x - 6, at.y - size, at.x + ruler.measureText(name).width + 14, at.y + size];
      if (taken.some(([west, north, east, south]) => own[0] < east && west < own[2] && own[1] < south && north < own[3])) continue;
      taken.push(own);
      const html = make("span", { "aria-hidden": "true" }, name);
      Object.assign(html.style, { fontSize: `${size}px`, fontWeight: weight });
      const icon = L.divIcon({ className: "place", html, iconSize: null });
      L.marker([y, x], { icon, pane: "places", interactive: false, keyboard: false }).addTo(this.names);
    }
  }
}
