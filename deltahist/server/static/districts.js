// Districts on the map, coloured by density, with their names and a table.

import * as L from "./leaflet/leaflet-src.esm.js";
import { get } from "./api.js";
import { Scale, showLegend } from "./density.js";
import { $, make } from "./dom.js";
import { estimateInWords, figure, intervalOf, percent, roundingStep } from "./words.js";

const ROWS = 500; // More would make the page slow.
const letters = make("canvas").getContext("2d");

export class Districts {
  constructor() {
    Object.assign(this, { turn: 0, scale: new Scale(), layers: new Map(), sorted: { by: "density", down: true } });
    this.moved = () => this.placeNames();
  }

  // Show estimates from a source {address, parameters, label}, or those of another release minus them.
  async show(ground, source, { compare, level, unbiased }, release, tell) {
    this.turn += 1;
    const turn = this.turn;
    this.layers.forEach((layer) => layer.closeTooltip()); // its figures are out of date
    const unit = `points per ${release.crs ? "km²" : "square unit"}`;
    try {
      const asked = { ...source.parameters, compare, level, nonnegative: !unbiased && !compare };
      const [outlines, found] = await Promise.all([
        this.outlines ?? get("districts"), get(`${source.address}/districts`, asked),
      ]);
      if (turn !== this.turn) return;
      this.outlines = outlines;
      this.rows = outlines.features.map((feature, at) => ({
        feature, name: feature.properties.name, unit: "points", level: found.level,
        ...Object.fromEntries(["estimate", "std_error", "low", "high", "density", "note", "stands_out"].map((each) => [each, found[each]?.[at]])),
      }));
    } catch (problem) {
      if (turn === this.turn) {
        this.hide();
        tell(problem.message);
      }
      return;
    }
    if (this.place !== ground.shown) this.draw(ground);
    const standing = this.rows.filter(({ stands_out: certain }) => certain).map(({ density }) => density);
    const classes = this.scale.classes(JSON.stringify([ground.shown, compare, source.parameters]), standing, compare);
    for (const { feature, density, stands_out: certain } of this.rows) {
      const colour = classes.find(({ from, to }) => from <= density && density < to)?.colour;
      this.layers.get(feature)?.setStyle({ fillColor: colour ?? "#fff", fillOpacity: certain && colour ? 1 : 0 });
    }
    this.unit = unit;
    this.group.addTo(this.map);
    this.map.on("moveend", this.moved);
    this.placeNames();
    this.map.getPane("districts").dataset.shows = [source.label, compare].filter(Boolean).join(" ");
    showLegend(unit, classes, source, compare, "district");
    $("districts").hidden = false;
    this.list();
  }

  hide() {
    this.turn += 1;
    if ($("districts").hidden) return;
    this.map.off("moveend", this.moved);
    this.group.remove();
    this.names.clearLayers();
    $("legend").replaceChildren();
    $("districts").hidden = true;
  }

  // Draw the outlines anew where the map shows another place.
  draw(ground) {
    this.group?.remove();
    this.names?.remove();
    Object.assign(this, { map: ground.map, place: ground.shown, ground, names: L.layerGroup().addTo(ground.map) });
    this.layers.clear();
    const renderer = L.canvas({ pane: "districts", padding: 0.15 });
    this.group = L.geoJSON(this.outlines, {
      renderer, coordsToLatLng: ground.place, style: { color: "#57606a", weight: 0.8 },
      onEachFeature: (feature, layer) => {
        this.layers.set(feature, layer);
        layer.bindTooltip(() => this.describe(feature), { sticky: true, className: "district" });
      },
    });
  }

  describe(feature) {
    const row = this.rows.find((each) => each.feature === feature);
    const [first, second] = estimateInWords(row);
    const density = row.estimate === null ? null : `${figure(row.density, 0, 3)} ${this.unit}`;
    const doubt = row.estimate === null || row.stands_out ? null : "It does not stand out from the noise.";
    const lines = [first, second, density, doubt, row.note !== second && row.note].filter(Boolean);
    return make("div", {}, make("strong", {}, row.name), ...lines.map((line) => make("div", {}, line)));
  }

  // Write the names of the largest districts that have room for them.
  placeNames() {
    this.names.clearLayers();
    const seen = this.map.getBounds();
    const taken = [];
    letters.font = "12px system-ui, sans-serif";
    const size = ({ x, y }) => x * y;
    const spans = [...this.layers].map(([{ properties }, layer]) => {
      const [low, high] = [layer.getBounds().getSouthWest(), layer.getBounds().getNorthEast()].map((each) => this.map.latLngToContainerPoint(each));
      return { ...properties, span: L.point(high.x - low.x, low.y - high.y) };
    }).sort((one, other) => size(other.span) - size(one.span));
    for (const { name, x, y, span } of spans) {
      const place = x === null ? null : this.ground.place([x, y]);
      const half = L.point(letters.measureText(name ?? "").width / 2 + 3, 9);
      if (!name || !place || !seen.contains(place) || span.x < 2 * half.x || span.y < 2 * half.y) continue;
      const middle = this.map.latLngToContainerPoint(place);
      const box = L.bounds(middle.subtract(half), middle.add(half));
      if (taken.some((each) => each.overlaps(box))) continue;
      taken.push(box);
      const icon = L.divIcon({ className: "name", html: make("span", {}, name), iconSize: null });
      L.marker(place, { icon, pane: "names", interactive: false, keyboard: false }).addTo(this.names);
    }
  }

  // List the districts, sorted by a column.
  list() {
    const { by, down } = this.sorted;
    const known = (row) => (by === "name" ? row.name !== null : row.estimate !== null);
    const order = new Intl.Collator(undefined, { numeric: true });
    const sign = down ? -1 : 1;
    const rows = this.rows.toSorted((one, other) => known(other) - known(one)
      || sign * (by === "name" ? order.compare(one.name ?? "", other.name ?? "") : one[by] - other[by]));
    const head = [["name", "district"], ["estimate", "points"], ["low", `${percent(this.rows[0].level)} interval`], ["density", this.unit.replace("points ", "")]]
      .map(([column, words]) => {
        const button = make("button", { type: "button", class: "link", "data-by": column }, words);
        button.addEventListener("click", () => {
          this.sorted = { by: column, down: by === column ? !down : column !== "name" };
          this.list();
          $("districts").querySelector(`[data-by=${column}]`).focus();
        });
        return make("th", { scope: "col", "aria-sort": by === column && (down ? "descending" : "ascending") }, button);
      });
    const body = rows.slice(0, ROWS).map((row) => {
      const pick = make("button", { type: "button", class: "link" }, row.name ?? "no name");
      pick.addEventListener("click", () => this.find(row));
      const figures = row.estimate === null ? [make("td", { colspan: 3 }, row.note || "not on the map")]
        : [figure(row.estimate, roundingStep(row.std_error)), intervalOf(row), figure(row.density, 0, 3)].map((each) => make("td", {}, each));
      return make("tr", { class: !row.stands_out && "pale" }, make("th", { scope: "row" }, pick), ...figures);
    });
    const more = rows.length > ROWS ? `The first ${ROWS} of ${figure(rows.length)}. ` : "";
    const words = `${more}Figures in grey do not stand out from the noise.`;
    $("district-table").replaceChildren(make("table", {}, make("caption", {}, words),
      make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
  }

  // Zoom to a district and describe it.
  find({ feature }) {
    const layer = this.layers.get(feature);
    if (!layer) return;
    const { x, y } = feature.properties;
    this.ground.fit(layer.getBounds().pad(0.5));
    layer.openTooltip(this.ground.place([x, y]));
  }
}
