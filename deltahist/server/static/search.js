// A search box for places and coordinates.

import * as L from "./leaflet/leaflet-src.esm.js";
import { get } from "./api.js";
import { $, make } from "./dom.js";
import { figure } from "./words.js";

const NUMBER = String.raw`(-?\d+(?:\.\d+)?)\s*°?\s*([NSEW]?)`;
const PAIR = new RegExp(`^${NUMBER}[\\s,;]+${NUMBER}$`, "i");

// Read "40.73, -73.99" or "40.73 N 73.99 W", or x and y of a plane. Return {x, y, label}, or null.
export function readCoordinates(text, plane) {
  const found = PAIR.exec(text.trim().replaceAll("−", "-"));
  if (!found) return null;
  const [first, second] = [[found[1], found[2]], [found[3], found[4]]].map(([number, letter]) => ({
    value: /[sw]/i.test(letter) ? -number : Number(number), across: letter && /[ew]/i.test(letter),
  }));
  if (plane) return { x: first.value, y: second.value, label: `${figure(first.value)}, ${figure(second.value)}` };
  const turned = first.across || second.across === false;
  const [y, x] = (turned ? [second, first] : [first, second]).map(({ value }) => value);
  if (Math.abs(y) > 90 || Math.abs(x) > 360) return null;
  const side = (value, letters) => `${figure(Math.abs(value))}° ${letters[value < 0 ? 1 : 0]}`;
  return { x, y, label: `${side(y, "NS")}, ${side(x, "EW")}` };
}

export class Search {
  constructor() {
    Object.assign(this, { options: [], active: -1, turn: 0 });
    const input = $("sought");
    input.addEventListener("input", () => {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.find(), 150);
    });
    input.addEventListener("keydown", (event) => this.onKey(event));
    input.addEventListener("blur", () => this.close());
    $("search").addEventListener("submit", async (event) => {
      event.preventDefault();
      clearTimeout(this.waiting);
      if (this.active < 0) await this.find();
      const chosen = this.options[Math.max(0, this.active)];
      if (chosen) this.choose(chosen);
      else if (input.value.trim()) this.say(this.plane ? "Enter x and y." : `No place is called ${input.value.trim()}.`);
    });
  }

  // Search on the map of another release.
  attach(ground) {
    if (this.shown !== ground.shown) this.clear();
    Object.assign(this, { ground, plane: ground.plane, shown: ground.shown });
    $("sought").placeholder = this.plane ? "x, y" : "Place or lat, lon";
  }

  clear() {
    this.marker?.remove();
    $("sought").value = "";
    this.close();
    this.say("");
  }

  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") this.close();
    else if (step && this.options.length) {
      event.preventDefault();
      this.activate((this.active + step + this.options.length) % this.options.length);
    }
  }

  async find() {
    const turn = this.turn += 1;
    const text = $("sought").value.trim();
    const place = readCoordinates(text, this.plane);
    let found = place ? [place] : [];
    if (!place && text && !this.plane) {
      const bbox = this.ground.map.getBounds().toBBoxString();
      found = await get("static/search.json", { q: text, bbox }).catch((problem) => { this.say(problem.message); return []; });
      found = found.map(({ name, region, x, y }) => ({ x, y, label: `${name}, ${region}` }));
    }
    if (turn !== this.turn) return; // a later call has replaced this one
    this.options = found;
    $("found").replaceChildren(...found.map((each, at) => {
      const option = make("li", { role: "option", id: `place-${at}`, "aria-selected": "false" }, each.label);
      option.addEventListener("mousedown", (event) => { event.preventDefault(); this.choose(each); });
      return option;
    }));
    this.activate(-1);
    this.open(found.length > 0);
  }

  activate(at) {
    this.active = at;
    [...$("found").children].forEach((option, number) => option.setAttribute("aria-selected", number === at));
    if (at < 0) $("sought").removeAttribute("aria-activedescendant");
    else $("sought").setAttribute("aria-activedescendant", `place-${at}`);
  }

  open(open) {
    $("found").hidden = !open;
    $("sought").setAttribute("aria-expanded", open);
  }

  close() {
    clearTimeout(this.waiting);
    this.turn += 1;
    this.options = [];
    this.activate(-1);
    this.open(false);
  }

  choose({ x, y, label }) {
    const { map, bounds, place } = this.ground;
    $("sought").value = label;
    this.close();
    this.marker?.remove();
    const at = place([x, y]);
    this.marker = L.circleMarker(at, { pane: "asked", className: "sought", radius: 7, interactive: false })
      .bindTooltip(make("span", {}, label), { permanent: true, direction: "top", offset: [0, -8] }).addTo(map);
    const inside = bounds.contains(at);
    const both = L.latLngBounds(bounds.getSouthWest(), bounds.getNorthEast()).extend(at);
    const zoom = inside ? Math.max(map.getZoom(), map.getBoundsZoom(bounds) + 2) : map.getBoundsZoom(both) - 1;
    if (map.options.maxBounds.contains(at)) map.setView(at, zoom, { animate: false });
    this.say(inside ? `The map shows ${label}.` : `${label} is not on the map of this release.`, inside);
  }

  // What is seen on the map is only read aloud.
  say(words, seen = false) {
    $("where-found").textContent = words;
    $("where-found").hidden = !words;
    $("where-found").classList.toggle("unseen", seen);
  }
}
