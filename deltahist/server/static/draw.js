// Draw an area by its corners, with a pointer or with the space bar at the centre of the map.

import * as L from "./leaflet/leaflet-src.esm.js";

const HINTS = {
  box: "Click two opposite corners.",
  polygon: "Click each corner, then the first one again to finish.",
};
const KEYS = " With keys: arrows move the map, Space sets a corner at the cross, Enter finishes, Escape ends.";

export class Drawing {
  // Calls done({box: [W, S, E, N]}) or done({polygon: [x, y, x, y, ...]}), and changed(mode, hint) when the mode changes.
  constructor(stage, done, changed) {
    Object.assign(this, { stage, done, changed, mode: null, corners: [], sketch: null });
    stage.addEventListener("keydown", (event) => this.onKey(event), true);
  }

  attach(map) {
    this.map = map;
    map.on("click", ({ latlng }) => this.mode && this.add(latlng));
    map.on("mousemove", ({ latlng }) => this.preview(latlng));
    map.on("move", () => this.preview(map.getCenter()));
  }

  start(mode) {
    this.stop();
    this.mode = mode;
    this.stage.dataset.drawing = mode;
    this.map.doubleClickZoom.disable();
    this.changed(mode, HINTS[mode] + KEYS);
    this.stage.focus({ preventScroll: true });
  }

  stop() {
    if (this.mode === null) return;
    this.sketch?.remove();
    Object.assign(this, { mode: null, corners: [], sketch: null });
    delete this.stage.dataset.drawing;
    this.map.doubleClickZoom.enable();
    this.changed(null, "");
  }

  onKey(event) {
    if (this.mode === null) return;
    if (event.key === " ") this.add(this.map.getCenter());
    else if (event.key === "Enter") this.finish();
    else if (event.key === "Escape") this.stop();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  add(place) {
    if (this.mode === "polygon" && this.corners.length > 2) {
      const [first, now] = [this.corners[0], place].map((each) => this.map.latLngToContainerPoint(each));
      if (first.distanceTo(now) < 12) return this.finish();
    }
    this.corners.push(place);
    if (this.mode === "box" && this.corners.length === 2) this.finish();
    else this.preview(place);
  }

  finish() {
    const corners = this.corners;
    const bounds = L.latLngBounds(corners);
    if (corners.length < (this.mode === "box" ? 2 : 3)) return;
    const shape = this.mode === "box"
      ? { box: [bounds.getWest(), bounds.getSouth(), bounds.getEast(), bounds.getNorth()] }
      : { polygon: corners.flatMap(({ lat, lng }) => [lng, lat]) };
    this.stop();
    if (bounds.getWest() < bounds.getEast() && bounds.getSouth() < bounds.getNorth()) this.done(shape);
  }

  preview(place) {
    this.sketch?.remove();
    if (!this.corners.length) return;
    const corners = [...this.corners, place];
    const shape = this.mode === "box" ? L.rectangle : L.polygon;
    const options = { pane: "asked", className: "asked sketch", interactive: false };
    this.sketch = shape(this.mode === "box" ? L.latLngBounds(corners) : corners, options).addTo(this.map);
  }
}
