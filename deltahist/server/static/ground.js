// The map itself: coordinates, background, the outline of a release, and a grid of degrees.

import * as L from "./leaflet/leaflet-src.esm.js";
import { Land, drawContext } from "./land.js";
import { Places } from "./places.js";

const TILE = 256;
// Order of what is drawn, the uppermost last.
const PANES = { land: 205, density: 210, districts: 220, context: 230, lines: 310, places: 320, asked: 420, names: 430 };

// Coordinates without a CRS: at zoom 0 the longer side of the map spans one tile, from the upper left corner.
function planeOf([west, south, east, north]) {
  const scale = TILE / Math.max(east - west, north - south);
  return L.extend({}, L.CRS.Simple, { transformation: L.transformation(scale, -scale * west, -scale, scale * north) });
}

export class Ground {
  constructor(element, settings) {
    Object.assign(this, { element, settings, map: null });
    this.place = ([x, y]) => L.latLng(y, this.turn(x));
  }

  // Shift a longitude by whole turns to be near the map, which may cross 180°.
  turn(x) {
    if (this.plane || this.bounds.getEast() <= 180) return x;
    const turns = (this.bounds.getCenter().lng - x) / 360;
    return x + 360 * Math.sign(turns) * Math.ceil(Math.abs(turns) - 0.5);
  }

  // Show where a release lies, in degrees or in plane coordinates.
  show(release) {
    const place = JSON.stringify([release.crs, release.bounds]);
    if (place === this.shown) return;
    this.shown = place;
    const plane = release.extent === null;
    const [west, south, east, north] = plane ? release.bounds : release.extent;
    if (this.map === null || plane || this.plane) this.make(plane ? planeOf(release.bounds) : L.CRS.EPSG3857, plane);
    this.bounds = L.latLngBounds([south, west], [north, east < west ? east + 360 : east]);
    this.outline.setBounds(this.bounds);
    this.map.setMaxBounds(this.bounds.pad(4));
    // If zoomed out further, the map would be a dot.
    this.map.setMinZoom(Math.max(0, Math.floor(this.map.getBoundsZoom(this.bounds)) - 3));
    this.drawContext();
  }

  async drawContext() {
    this.context?.remove();
    const { map, place, shown, settings } = this;
    if (settings.context !== (this.plane ? "plane" : "degrees")) return;
    const context = await drawContext(map, place);
    if (shown === this.shown) this.context = context;
    else context.remove();
  }

  make(crs, plane) {
    this.map?.remove();
    this.plane = plane;
    delete this.element.dataset.background;
    this.element.style.removeProperty("--far");
    this.map = L.map(this.element, {
      crs, minZoom: 0, maxZoom: plane ? 12 : 19, zoomSnap: 0.25, zoomDelta: 1, wheelPxPerZoomLevel: 90, zoomControl: false,
      boxZoom: false, attributionControl: false,
    });
    for (const [name, above] of Object.entries(PANES)) this.map.createPane(name).style.zIndex = above;
    if (!plane) this.addSurroundings();
    L.control.zoom({ position: "bottomright" }).addTo(this.map);
    this.outline = L.rectangle([[0, 0], [0, 0]], {
      pane: "lines", className: "outline", fill: false, interactive: false,
    }).addTo(this.map);
    this.lines = L.layerGroup().addTo(this.map);
    this.map.on("moveend resize", () => this.drawLines());
  }

  // Tiles show land and names of their own.
  addSurroundings() {
    const { tiles, attribution } = this.settings;
    const credits = ['<a href="https://www.geonames.org/">GeoNames</a> (CC BY 4.0)'];
    if (tiles) {
      credits.push(attribution.replace(/[&<>"]/g, (each) => `&#${each.charCodeAt(0)};`));
      L.tileLayer(tiles, { maxZoom: 19, className: "background" }).addTo(this.map);
      this.element.dataset.background = "";
    } else {
      credits.push('<a href="https://www.naturalearthdata.com/">Natural Earth</a>');
      new Land(this);
      new Places(this.map);
    }
    const control = L.control.attribution({ prefix: false }).addTo(this.map);
    credits.filter(Boolean).forEach((credit) => control.addAttribution(credit));
    L.control.scale({ imperial: false, position: "bottomright" }).addTo(this.map);
  }

  fit(bounds = this.bounds) {
    this.map.fitBounds(bounds, { animate: false, paddingTopLeft: [16, 60], paddingBottomRight: [16, 16] }); // below the tools
  }

  // Zoom to areas on the release's map, or to the whole map if none is on it.
  fitAreas(areas) {
    const near = L.latLngBounds([]);
    areas.eachLayer((layer) => {
      if (layer.getBounds().isValid() && layer.getBounds().intersects(this.bounds)) near.extend(layer.getBounds());
    });
    this.fit(near.isValid() ? near : this.bounds);
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
    const step = roundStep((110 * (east - west)) / this.map.getSize().x);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    for (const [from, to, letters, upright] of [[west, east, "EW", true], [south, north, "NS", false]]) {
      for (let at = Math.ceil(from / step) * step; at < to; at += step) {
        const ends = upright ? [[south, at], [north, at]] : [[at, west], [at, east]];
        L.polyline(ends, { pane: "lines", className: "graticule", interactive: false }).addTo(this.lines);
        const label = document.createElement("span");
        const turned = upright ? at - 360 * Math.floor((at + 180) / 360) : at; // beyond 180° east is west
        label.textContent = this.plane
          ? at.toFixed(digits)
          : `${Math.abs(turned).toFixed(digits)}° ${turned < 0 ? letters[1] : letters[0]}`;
        const icon = L.divIcon({ className: upright ? "tick upright" : "tick", html: label, iconSize: null });
        const place = upright ? [south, at] : [at, west];
        L.marker(place, { icon, pane: "lines", interactive: false, keyboard: false }).addTo(this.lines);
      }
    }
  }
}

// Return the smallest of ..., 0.2, 0.5, 1, 2, 5, 10, 20, ... that is not below a number.
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find((each) => each * power >= least * 0.99999) * power;
}
