// Densities on the map: blocks of cells on a canvas, of one release, of two beside a border, or their difference.

import * as L from "./leaflet/leaflet-src.esm.js";
import { get, releasePath } from "./api.js";
import { $, draw, make } from "./dom.js";
import { figure } from "./words.js";

// Pixels along a block, at least, and colours of a scale.
const [PIXELS, SHADES] = [6, 64];
const RISING = ["#fcfdbf", "#feca8d", "#fd9668", "#f1605d", "#cd4071", "#9e2f7f", "#721f81", "#440f76", "#180f3d"];
const SIGNED = ["#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b"];

export class Density {
  constructor() {
    Object.assign(this, { layers: [], turn: 0, covered: null, top: null });
    this.clip = () => this.onSwipe();
    this.moved = () => this.load();
    $("border").addEventListener("input", this.clip);
  }

  // Show releases as a state says; tell(trouble) says what cannot be drawn.
  show(ground, { release, compare, way }, shape, tell) {
    this.map?.off("move zoom resize", this.clip).off("moveend", this.moved);
    this.difference = compare && way === "difference" ? compare : null;
    this.names = compare && !this.difference ? [release, compare] : [release];
    Object.assign(this, { ground, map: ground.map, shape, tell, covered: null });
    if (!this.layers.length) $("legends").replaceChildren(make("p", { class: "legend" }, "Drawing …"));
    const swiping = this.names.length === 2;
    $("swipe").hidden = !swiping;
    [$("left").textContent, $("right").textContent] = swiping ? this.names : ["", ""];
    this.map.on("moveend", this.moved);
    if (swiping) this.map.on("move zoom resize", this.clip);
    this.drawn = this.load();
    return this.drawn;
  }

  // Draw what is seen, unless it is drawn already.
  async load() {
    const { map, ground, names, difference } = this;
    const seen = within(map.getBounds(), ground.bounds);
    if (!seen) return;
    const width = this.chooseWidth();
    if (this.covered?.width === width && this.covered.box.contains(seen)) return;
    this.turn += 1;
    const turn = this.turn;
    const box = within(map.getBounds().pad(0.15), ground.bounds);
    const bbox = [box.getWest(), box.getSouth(), box.getEast(), box.getNorth()].join(",");
    const view = JSON.stringify([bbox, width, difference]);
    let found;
    try {
      found = await Promise.all(names.map((name) => get(`${releasePath(name)}/cells`, { bbox, width, compare: difference })));
    } catch (problem) {
      if (turn === this.turn) {
        this.clear();
        this.tell(problem.message);
      }
      return;
    }
    if (turn !== this.turn) return; // something else is shown by now
    this.tell("");
    // Steps and releases that are seen at one place, one after the other, have one scale.
    const top = Math.max(...found.map(findTop), this.view === view ? this.top : 0);
    Object.assign(this, { covered: { box, width }, view, top });
    const colours = new Colours(top, Boolean(difference));
    const before = this.layers;
    this.layers = found.map((cells, number) => {
      const canvas = paint(ground, box, cells, colours);
      canvas.dataset.shows = [names[number], difference].filter(Boolean).join(" ");
      return L.svgOverlay(canvas, box, { pane: number ? "other" : "density", className: "densities" }).addTo(map);
    });
    before.forEach((layer) => layer.remove());
    const words = names.length === 2 ? "on both sides" : difference ? `${difference} minus ${names[0]}` : "";
    $("legends").replaceChildren(drawLegend(found[0].unit, colours, words));
    this.onSwipe();
  }

  // Cells along a block that is wide enough to be seen: a power of two, so that blocks stay while the map moves.
  chooseWidth() {
    const [low, high] = [this.ground.bounds.getSouthWest(), this.ground.bounds.getNorthEast()].map((each) => this.map.project(each));
    const cell = Math.min(Math.abs(high.x - low.x) / this.shape[0], Math.abs(high.y - low.y) / this.shape[1]);
    return 2 ** Math.min(20, Math.max(0, Math.ceil(Math.log2(PIXELS / cell))));
  }

  // What was shown must not remain beside a refusal.
  clear() {
    this.layers.forEach((layer) => layer.remove());
    Object.assign(this, { layers: [], covered: null });
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

function within(one, other) {
  if (!one.intersects(other)) return null;
  return L.latLngBounds(
    [Math.max(one.getSouth(), other.getSouth()), Math.max(one.getWest(), other.getWest())],
    [Math.min(one.getNorth(), other.getNorth()), Math.min(one.getEast(), other.getEast())],
  );
}

// The largest density that stands out, or of all if none does, rounded up to 1, 2 or 5 times a power of ten.
function findTop({ density, stands_out: certain }) {
  const sure = density.filter((_, number) => certain[number]);
  const top = (sure.length ? sure : density).reduce((most, each) => Math.max(most, Math.abs(each)), 0) || 1;
  const power = 10 ** Math.floor(Math.log10(top));
  return Number(([1, 2, 5, 10].find((each) => each * power >= top * 0.9999) * power).toPrecision(1));
}

// Colours rise with the logarithm of densities, and are proportional to the smallest ones.
class Colours {
  constructor(top, signed) {
    Object.assign(this, { top, signed, ramp: signed ? SIGNED : RISING });
    const pen = new OffscreenCanvas(SHADES, 1).getContext("2d");
    const fill = pen.createLinearGradient(0, 0, SHADES, 0);
    this.ramp.forEach((colour, number) => fill.addColorStop(number / (this.ramp.length - 1), colour));
    pen.fillStyle = fill;
    pen.fillRect(0, 0, SHADES, 1);
    const { data } = pen.getImageData(0, 0, SHADES, 1);
    this.shades = Array.from({ length: SHADES }, (_, at) => `rgb(${data.slice(4 * at, 4 * at + 3).join(" ")})`);
  }

  shadeOf(value) {
    const size = Math.min(1, Math.log1p((100 * Math.max(0, this.signed ? Math.abs(value) : value)) / this.top) / Math.log1p(100));
    const place = this.signed ? (1 + Math.sign(value) * size) / 2 : size;
    return Math.min(SHADES - 1, Math.floor(place * SHADES));
  }

  get stops() {
    const steps = [1, 2, 5].flatMap((each) => [0.001, 0.01, 0.1].map((power) => each * power * 10)).sort((a, b) => b - a);
    const lead = Number(this.top.toExponential(0).split("e")[0]); // 1, 2 or 5
    const round = steps.map((each) => each * 10 ** Math.floor(Math.log10(this.top) + 1e-9)).filter((each) => each <= this.top * 1.001);
    const rising = [0, ...round.slice(0, lead === 1 ? 7 : 6).reverse()];
    const chosen = this.signed ? [...rising.slice(1).filter((_, at) => at % 2).map((each) => -each).reverse(), ...rising.filter((_, at) => at % 2 === 0)] : rising;
    return chosen.map((value) => [Number(value.toPrecision(1)), this.shades[this.shadeOf(value)]]);
  }
}

// Draw blocks; corners between the nodes of a mesh are interpolated, which is exact to less than a pixel.
function paint(ground, box, { shape: [nx, ny], ends, nodes, x, y, density, stands_out: certain }, colours) {
  const { map } = ground;
  const [first, last] = [box.getNorthWest(), box.getSouthEast()].map((each) => map.project(each));
  const ratio = devicePixelRatio || 1;
  const canvas = make("canvas", { width: Math.ceil((last.x - first.x) * ratio), height: Math.ceil((last.y - first.y) * ratio) });
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const known = x.map((each, number) => map.project(ground.place([each, y[number]])).subtract(first));
  const places = ends.map((each, axis) => each.map((end) => {
    const at = Math.max(0, nodes[axis].findIndex((node) => node >= end) - 1);
    return [at, (end - nodes[axis][at]) / (nodes[axis][at + 1] - nodes[axis][at])];
  }));
  const deep = nodes[1].length;
  const corners = places[0].map(([i, a]) => places[1].map(([j, b]) => {
    const [sw, nw, se, ne] = [known[i * deep + j], known[i * deep + j + 1], known[(i + 1) * deep + j], known[(i + 1) * deep + j + 1]];
    return ["x", "y"].map((axis) => (1 - a) * ((1 - b) * sw[axis] + b * nw[axis]) + a * ((1 - b) * se[axis] + b * ne[axis]));
  }));
  const paths = new Map();
  const hatched = new Path2D();
  for (let i = 0, number = 0; i < nx; i += 1) {
    for (let j = 0; j < ny; j += 1, number += 1) {
      const shade = colours.shadeOf(density[number]);
      if (!paths.has(shade)) paths.set(shade, new Path2D());
      for (const path of certain[number] ? [paths.get(shade)] : [paths.get(shade), hatched]) {
        path.moveTo(...corners[i][j]);
        for (const corner of [corners[i + 1][j], corners[i + 1][j + 1], corners[i][j + 1]]) path.lineTo(...corner);
        path.closePath();
      }
    }
  }
  pen.lineWidth = 0.7; // or there would be seams
  for (const [shade, path] of paths) {
    pen.fillStyle = pen.strokeStyle = colours.shades[shade];
    pen.fill(path);
    pen.stroke(path);
  }
  pen.fillStyle = hatch(pen, ratio);
  pen.fill(hatched);
  return canvas;
}

function hatch(pen, ratio) {
  const size = Math.round(8 * ratio);
  const tile = new OffscreenCanvas(size, size);
  const line = tile.getContext("2d");
  Object.assign(line, { strokeStyle: "rgb(120 120 120 / 0.55)", lineWidth: 1.2 * ratio });
  for (const shift of [-size, 0, size]) {
    line.moveTo(shift - 2, size + 2);
    line.lineTo(shift + size + 2, -2);
  }
  line.stroke();
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

function drawLegend(unit, colours, name) {
  const { stops } = colours;
  const swatches = stops.map(([value, colour]) => {
    const swatch = make("span", { class: "swatch densities" });
    swatch.style.background = colour;
    return make("li", {}, swatch, make("span", {}, figure(value)));
  });
  const wide = stops.reduce((sum, [value]) => sum + 2 + figure(value).length, 0) > 48; // characters
  const lines = [2, 8, 14, 20].map((x) => draw("line", { x1: x - 6, y1: 12, x2: x + 6, y2: 0 }));
  const mark = draw("svg", { class: "hatch", viewBox: "0 0 22 12", "aria-hidden": "true" }, ...lines);
  const why = "95% confidence that none of the plain blocks in view is empty";
  return make("section", { class: "legend", "aria-label": `Colours ${name}` },
    name && make("strong", {}, name), make("span", { class: "unit" }, unit),
    make("ul", { class: (stops.length > 7 || wide) && "many" }, ...swatches), make("p", { title: why }, mark, "may be noise"));
}
