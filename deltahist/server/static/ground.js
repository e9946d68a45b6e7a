// The map itself: coordinates, background, the outline of a release, and lines of degrees.

import * as L from "./leaflet/leaflet-src.esm.js";

const PLANE = { crs: L.CRS.Simple, minZoom: -30, maxZoom: 30 };
const EARTH = { crs: L.CRS.EPSG3857, minZoom: 2, maxZoom: 19 };

export class Ground {
  constructor(element, settings) {
    Object.assign(this, { element, settings, map: null, plane: null });
  }

  // Show where a release lies; coordinates are degrees, or those of its plane.
  show(release) {
    const plane = release.extent === null;
    if (this.map === null || plane !== this.plane) this.make(plane);
    const [west, south, east, north] = plane ? release.bounds : release.extent;
    this.bounds = L.latLngBounds([south, west], [north, east < west ? east + 360 : east]);
    this.outline.setBounds(this.bounds);
    this.map.setMaxBounds(this.bounds.pad(4));
    return this;
  }

  make(plane) {
    this.map?.remove();
    this.plane = plane;
    this.map = L.map(this.element, {
      ...(plane ? PLANE : EARTH), zoomSnap: 0.5, zoomDelta: 1, wheelPxPerZoomLevel: 90, zoomControl: false,
      boxZoom: false, attributionControl: false,
    });
    L.control.zoom({ position: "bottomright" }).addTo(this.map);
    for (const [name, above] of [["density", 210], ["other", 220], ["context", 300], ["lines", 310], ["asked", 420]]) {
      this.map.createPane(name).style.zIndex = above;
    }
    if (this.settings.tiles && !plane) {
      const words = this.settings.attribution.replace(/[&<>"]/g, (each) => `&#${each.charCodeAt(0)};`);
      L.control.attribution({ prefix: false }).addAttribution(words).addTo(this.map);
      L.tileLayer(this.settings.tiles, { maxZoom: 19 }).addTo(this.map);
    }
    this.outline = L.rectangle([[0, 0], [0, 0]], {
      pane: "lines", className: "outline", fill: false, interactive: false,
    }).addTo(this.map);
    this.lines = L.layerGroup().addTo(this.map);
    this.map.on("moveend resize", () => this.drawLines());
  }

  fit(bounds = this.bounds) {
    this.map.fitBounds(bounds, { animate: false, padding: [24, 24] });
  }

  view() {
    const { lat, lng } = this.map.getCenter();
    return [lng, lat, this.map.getZoom()];
  }

  // Draw meridians and parallels, or lines of the plane, at round values.
  drawLines() {
    this.lines.clearLayers();
    const seen = this.map.getBounds();
    const [west, south, east, north] = [seen.getWest(), seen.getSouth(), seen.getEast(), seen.getNorth()];
    const step = roundStep(Math.max(east - west, (north - south) * 1.3) / 6);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    for (const [from, to, letters, upright] of [[west, east, "EW", true], [south, north, "NS", false]]) {
      for (let at = Math.ceil(from / step) * step; at < to; at += step) {
        const ends = upright ? [[south, at], [north, at]] : [[at, west], [at, east]];
        L.polyline(ends, { pane: "lines", className: "graticule", interactive: false }).addTo(this.lines);
        const label = document.createElement("span");
        label.textContent = this.plane
          ? at.toFixed(digits)
          : `${Math.abs(at).toFixed(digits)}° ${at < 0 ? letters[1] : letters[0]}`;
        const icon = L.divIcon({ className: upright ? "tick upright" : "tick", html: label, iconSize: null });
        const place = upright ? [south, at] : [at, west];
        L.marker(place, { icon, pane: "lines", interactive: false, keyboard: false }).addTo(this.lines);
      }
    }
  }
}

function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find((each) => each * power >= least) * power;
}
