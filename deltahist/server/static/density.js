// Densities on the map as tiles, of one release, of two on both sides of a border, or their difference; and legends.

import * as L from "./leaflet/leaflet-src.esm.js";
import { get, releasePath } from "./api.js";
import { $, draw, make } from "./dom.js";
import { figure } from "./words.js";

// Tiles are numbered once around the world, also where a map goes on beyond 180° east.
const Tiles = L.TileLayer.extend({
  getTileUrl({ x, y, z }) {
    const around = 2 ** z;
    return L.TileLayer.prototype.getTileUrl.call(this, { x: ((x % around) + around) % around, y, z });
  },
});

export class Density {
  constructor() {
    this.layers = [];
    this.clip = () => this.onSwipe();
    $("border").addEventListener("input", this.clip);
  }

  // Show releases as a state says; `ground` has the map, and tell(trouble) says what cannot be drawn.
  async show(ground, { release, compare, way }, digest, tell) {
    this.map?.off("move zoom resize", this.clip);
    const before = this.layers;
    Object.assign(this, { map: ground.map, shown: (this.shown ?? 0) + 1 });
    const difference = compare && way === "difference" ? compare : null;
    const names = compare && !difference ? [release, compare] : [release];
    const swiping = names.length === 2;
    const shown = this.shown;
    if (!before.length) $("legends").replaceChildren(make("p", { class: "legend" }, "Drawing …"));
    let legend;
    try {
      legend = await get(`${releasePath(release)}/legend`, { compare: difference, alike: names[1] });
    } catch (problem) {
      if (shown === this.shown) this.clear();
      throw problem;
    }
    if (shown !== this.shown) return; // something else is shown by now
    const grid = ground.plane ? "plane" : "WebMercatorQuad";
    this.layers = names.map((name, number) => new Tiles(
      `${releasePath(name)}/tiles/${grid}/{z}/{x}/{y}${devicePixelRatio > 1 ? "@2x" : ""}.png?digest=${digest}&scale=${legend.scale}${difference ? `&compare=${encodeURIComponent(difference)}` : ""}`,
      { pane: number ? "other" : "density", bounds: ground.bounds, noWrap: true, minZoom: 0, maxZoom: 24, className: "densities" },
    ).addTo(ground.map));
    for (const layer of this.layers) {
      layer.on("tileerror", () => tell("Parts of the map cannot be drawn: the service cannot be reached, or is busy. Move the map to try again."));
      layer.on("loading", () => tell(""));
    }
    // What was shown stays until there is something to see in its place.
    const clear = () => before.forEach((layer) => layer.remove());
    this.layers[0].once("load", clear);
    this.drawn = new Promise((done) => this.layers[0].once("load", done));
    setTimeout(clear, 1000);
    $("legends").replaceChildren(drawLegend(legend, swiping ? "on both sides" : difference ? `${difference} minus ${release}` : ""));
    $("swipe").hidden = !swiping;
    [$("left").textContent, $("right").textContent] = swiping ? names : ["", ""];
    if (swiping) ground.map.on("move zoom resize", this.clip);
    this.onSwipe();
  }

  // What was shown must not stand beside a refusal.
  clear() {
    this.layers.forEach((layer) => layer.remove());
    this.layers = [];
    $("legends").replaceChildren();
    $("swipe").hidden = true;
    this.onSwipe();
  }

  onSwipe() {
    const [left, right] = ["density", "other"].map((name) => this.map.getPane(name).style);
    left.clipPath = right.clipPath = "";
    if ($("swipe").hidden) return;
    const size = this.map.getSize();
    const from = this.map.containerPointToLayerPoint([0, 0]);
    const to = this.map.containerPointToLayerPoint(size);
    const border = from.x + (size.x * $("border").value) / 100;
    const window = (a, b) => `polygon(${a}px ${from.y}px, ${b}px ${from.y}px, ${b}px ${to.y}px, ${a}px ${to.y}px)`;
    left.clipPath = window(from.x, border);
    right.clipPath = window(border, to.x);
    $("line").style.left = `${$("border").value}%`;
  }
}

function drawLegend({ unit, stops, hatched }, name) {
  const swatches = stops.map(([value, colour]) => {
    const swatch = make("span", { class: "swatch densities" });
    swatch.style.background = colour;
    return make("li", {}, swatch, make("span", {}, figure(value)));
  });
  const wide = stops.reduce((sum, [value]) => sum + 2 + figure(value).length, 0) > 48; // characters
  const lines = [2, 8, 14, 20].map((x) => draw("line", { x1: x - 6, y1: 12, x2: x + 6, y2: 0 }));
  const hatch = draw("svg", { class: "hatch", viewBox: "0 0 22 12", "aria-hidden": "true" }, ...lines);
  const words = hatched.replace(/^Hatched: /, "").replace(/ \(.*/, "");
  return make("section", { class: "legend", "aria-label": `Colours ${name}` },
    name && make("strong", {}, name), make("span", { class: "unit" }, unit),
    make("ul", { class: (stops.length > 7 || wide) && "many" }, ...swatches), make("p", { title: hatched }, hatch, words));
}
