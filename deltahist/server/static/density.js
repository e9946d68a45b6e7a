// Densities on the map: blocks of cells that stand out, in a release or the difference of two.

import * as L from "./leaflet/leaflet-src.esm.js";
import { get } from "./api.js";
import { $, make } from "./dom.js";
import { roundStep } from "./ground.js";
import { figure } from "./words.js";

// Minimum number of pixels along a block.
const PIXELS = 6;
// What is dense stands out from the ground: dark by day, and light at night.
const DAY = {
  more: ["#fed9a6", "#fdae6b", "#f1605d", "#cd4071", "#8c2981", "#3b0f70"],
  fewer: ["#d1e5f0", "#92c5de", "#67a9cf", "#4393c3", "#2166ac", "#053061"],
};
const NIGHT = {
  more: ["#3b2a6b", "#6a2f8f", "#a8327d", "#e0525f", "#fb9062", "#fde2a8"],
  fewer: ["#17355a", "#1f5288", "#2f76b5", "#559fd4", "#92c8ea", "#d6ecf9"],
};
export const night = matchMedia("(prefers-color-scheme: dark)");

export class Density {
  constructor() {
    Object.assign(this, { drawn: [], turn: 0, covered: null, scale: new Scale() });
    this.moved = () => { this.loading = this.load(); };
  }

  // Show a source {address, parameters, label}, or another release minus it. tell(trouble) reports what cannot be drawn.
  // Resolves when the map is drawn, also if it moves meanwhile.
  async show(ground, source, { compare }, { shape }, tell) {
    this.map?.off("moveend", this.moved);
    Object.assign(this, { ground, map: ground.map, source, compare, shape, tell, covered: null });
    if (!this.drawn.length) $("legend").replaceChildren("Drawing …");
    this.map.on("moveend", this.moved);
    this.moved();
    let before;
    do {
      before = this.loading;
      await before;
    } while (before !== this.loading);
  }

  hide() {
    this.turn += 1;
    this.map?.off("moveend", this.moved);
    if (this.drawn.length) this.clear();
  }

  // Draw the visible part, unless it is already drawn.
  async load() {
    const { map, source: { address, parameters, label }, compare } = this;
    const width = this.chooseWidth();
    if (this.covered?.width === width && this.covered.box.contains(map.getBounds())) return;
    this.turn += 1;
    const turn = this.turn;
    const box = map.getBounds().pad(0.15);
    const bbox = [box.getWest(), box.getSouth(), box.getEast(), box.getNorth()].join(",");
    let found;
    try {
      found = await get(`${address}/cells`, { ...parameters, bbox, width, compare });
    } catch (problem) {
      if (turn === this.turn) {
        this.clear();
        this.tell(problem.message);
      }
      return;
    }
    if (turn !== this.turn) return; // a later call has replaced this one
    this.tell("");
    const blocks = blocksOf(found);
    const view = JSON.stringify([bbox, width, compare, parameters]);
    const classes = this.scale.classes(view, blocks.map(({ density }) => density), compare);
    this.clear();
    Object.assign(this, { covered: { box, width }, drawn: this.draw(blocks, found, classes) });
    map.getPane("density").dataset.shows = [label, compare].filter(Boolean).join(" ");
    showLegend(found.unit, classes, this.source, compare, "block");
  }

  // Draw the blocks of each class as one shape.
  draw(blocks, { shape: [, deep], x, y }, classes) {
    const renderer = L.canvas({ pane: "density", padding: 0.15 });
    const rings = classes.map(() => []);
    for (const { first: [west, south], last: [east, north], density } of blocks) {
      const ring = [[west, south], [east, south], [east, north], [west, north]].map(([i, j]) => i * (deep + 1) + j)
        .map((corner) => this.ground.place([x[corner], y[corner]]));
      rings[classes.findIndex(({ from, to }) => from <= density && density < to)].push([ring]);
    }
    const shapes = rings.map((own, number) => L.polygon(own, {
      renderer, interactive: false, smoothFactor: 0, color: classes[number].colour, weight: 0.7, fillOpacity: 1, // or there would be seams
    }).addTo(this.map));
    return [...shapes, renderer];
  }

  // Number of cells along a block that is wide enough to see: a power of two, so that blocks stay while the map moves.
  chooseWidth() {
    const [low, high] = [this.ground.bounds.getSouthWest(), this.ground.bounds.getNorthEast()].map((each) => this.map.project(each));
    const cell = Math.min(Math.abs(high.x - low.x) / this.shape[0], Math.abs(high.y - low.y) / this.shape[1]);
    return 2 ** Math.min(20, Math.max(0, Math.ceil(Math.log2(PIXELS / cell))));
  }

  // Remove old blocks, so that they do not remain next to an error.
  clear() {
    this.drawn.forEach((layer) => layer.remove());
    Object.assign(this, { drawn: [], covered: null });
    $("legend").replaceChildren();
  }
}

// The blocks that stand out, and larger blocks that stand out although none of their parts does.
function blocksOf({ shape: [, deep], density, stands_out: certain, larger }) {
  const own = density.map((each, number) => ({ density: each, place: [Math.floor(number / deep), number % deep] }))
    .filter((_, number) => certain[number]);
  return [...larger, ...own.map(({ density: each, place: [i, j] }) => ({ density: each, first: [i, j], last: [i + 1, j + 1] }))];
}

// The classes of densities. Steps and releases viewed in turn at the same place share a scale.
export class Scale {
  classes(view, densities, signed) {
    if (view !== this.view) Object.assign(this, { view, ends: [Infinity, 0] });
    this.ends = densities.map(Math.abs).reduce(([low, high], each) => [Math.min(low, each), Math.max(high, each)], this.ends);
    return classesOf(...this.ends, signed);
  }
}

// At most six classes of densities with round ends, largest first, and as many for negative differences.
function classesOf(low, high, signed) {
  if (!high) return [];
  const wide = high > 10 * low; // ends are 1, 2, 5, 10 and so on if wide, and evenly spaced if not
  const step = roundStep(high / 6);
  const ends = [];
  for (let end = wide ? roundStep(high * 1.0001) : step * Math.ceil((high * 1.0001) / step); ends.length < 7 && !(ends.at(-1) <= low);) {
    ends.push(Number(end.toPrecision(6)));
    end = wide ? roundStep(end / 2.6) : end - step;
  }
  if (ends.at(-1) > low) ends[ends.length - 1] = 0;
  const ramps = night.matches ? NIGHT : DAY;
  const colour = (ramp, at) => ramp[Math.round(5 - (5 * at) / Math.max(1, ends.length - 2))];
  const more = ends.slice(1).map((from, at) => ({ from, to: ends[at], colour: colour(ramps.more, at), words: `${figure(from)} to ${figure(ends[at])}` }));
  if (!signed) return more;
  const fewer = more.map(({ from, to, words }, at) => ({ from: -to, to: -from, colour: colour(ramps.fewer, at), words: `${words} fewer` }));
  return [...more.map((each) => ({ ...each, words: `${each.words} more` })), ...fewer.reverse()];
}

// Explain the colours of parts of the map, which are blocks or districts.
export function showLegend(unit, classes, { parameters, label }, compare, part) {
  const swatches = classes.map(({ colour, words }) => {
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = colour;
    return make("li", {}, swatch, words);
  });
  const [none, sure] = compare ? ["no difference that stands out", "really differs"] : ["points, if any, are hidden by noise", "contains points"];
  const density = part === "district" ? "Colours show density, not the number of points. " : "";
  $("legend").replaceChildren(
    make("h2", {}, [unit, compare ? `${compare} minus ${label}` : parameters.between && label].filter(Boolean).join(", ")),
    make("ul", {}, ...swatches, make("li", {}, make("span", { class: "swatch empty" }), none)),
    make("p", {}, density + (classes.length ? `On 95 of 100 such maps, every coloured ${part} ${sure}.` : "")),
  );
}
