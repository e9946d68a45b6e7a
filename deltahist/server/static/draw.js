// Drawing an area: a box by dragging, a polygon by its corners, both also with the space bar at the map's middle.

import * as L from "./leaflet/leaflet-src.esm.js";

const HINTS = {
  box: "Drag across the map. With keys: arrows move the map, Space sets a corner at the cross, Escape ends.",
  polygon: "Click corner after corner; click the first again to finish. With keys: arrows move the map, Space sets a corner, Enter finishes.",
};

export class Drawing {
  // done(shape) gets {box: [W, S, E, N]} or {polygon: [x, y, x, y, ...]}; changed(mode, hint) what is being drawn.
  constructor(stage, done, changed) {
    Object.assign(this, { stage, done, changed, mode: null, corners: [], sketch: null });
    for (const name of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) {
      stage.addEventListener(name, (event) => this.onPointer(event), true);
    }
    stage.addEventListener("keydown", (event) => this.onKey(event), true);
    stage.addEventListener("dblclick", (event) => this.mode && event.stopPropagation(), true);
  }

  attach(map) {
    this.map = map;
    map.on("move", () => this.mode && this.corners.length && this.preview(map.getCenter()));
  }

  start(mode) {
    this.stop();
    this.mode = mode;
    this.stage.dataset.drawing = mode;
    this.map.doubleClickZoom.disable();
    if (mode === "box") this.map.dragging.disable();
    this.changed(mode, HINTS[mode]);
    this.stage.focus({ preventScroll: true });
  }

  stop() {
    if (this.mode === null) return;
    this.sketch?.remove();
    Object.assign(this, { mode: null, corners: [], sketch: null, pressed: null });
    delete this.stage.dataset.drawing;
    this.map.doubleClickZoom.enable();
    this.map.dragging.enable();
    this.changed(null, "");
  }

  onPointer(event) {
    if (this.mode === null || event.target.closest(".leaflet-control")) return;
    const place = this.map.mouseEventToLatLng(event);
    if (event.type === "pointercancel") this.pressed = null;
    else if (event.type === "pointerdown" && event.isPrimary) {
      this.pressed = { x: event.clientX, y: event.clientY };
      if (this.mode === "box") {
        event.preventDefault();
        this.stage.setPointerCapture(event.pointerId);
        this.corners = [place];
      }
    } else if (event.type === "pointermove") {
      if (this.mode === "box" ? this.pressed : event.pointerType === "mouse") this.preview(place);
    } else if (event.type === "pointerup" && this.pressed) {
      const far = Math.hypot(event.clientX - this.pressed.x, event.clientY - this.pressed.y) > 4;
      this.pressed = null;
      if (this.mode === "box" ? far : !far) this.add(place);
    }
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
    if (corners.length < (this.mode === "box" ? 2 : 3)) return;
    const bounds = L.latLngBounds(corners);
    const shape = this.mode === "box"
      ? { box: [bounds.getWest(), bounds.getSouth(), bounds.getEast(), bounds.getNorth()] }
      : { polygon: corners.flatMap(({ lat, lng }) => [lng, lat]) };
    this.stop();
    if (bounds.getWest() < bounds.getEast() && bounds.getSouth() < bounds.getNorth()) this.done(shape);
  }

  preview(place) {
    this.sketch?.remove();
    const options = { pane: "asked", className: "asked sketch", interactive: false };
    const corners = [...this.corners, place];
    this.sketch = this.mode === "box"
      ? L.rectangle(L.latLngBounds(corners), options)
      : L.polygon(corners, options);
    this.sketch.addTo(this.map);
  }
}
