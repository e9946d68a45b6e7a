// The page: what is chosen, asked and shown, and who is told.

import * as L from "./leaflet/leaflet-src.esm.js";
import { asTable, nameOf, showAnswer, showFeatures } from "./answers.js";
import { ask, get, releasePath } from "./api.js";
import { $, make, save } from "./dom.js";
import { Drawing } from "./draw.js";
import { Ground } from "./ground.js";
import { readHash, writeHash } from "./hash.js";
import { explain } from "./promise.js";

const state = { ...readHash(), features: null, chosen: null, answered: null };
const form = $("where");
let releases, ground, drawing, asked, pending;

const current = () => releases.find(({ id }) => id === state.release);

async function begin() {
  const [settings, list] = await Promise.all([get("static/settings.json"), get("releases")]);
  releases = list.releases;
  ground = new Ground($("map"), settings);
  drawing = new Drawing($("map"), (shape) => choose(shape), showMode);
  $("release").replaceChildren(...releases.map(({ id }) => make("option", { value: id }, id)));
  if (!current()) state.release = releases[0]?.id;
  await showRelease();
}

async function showRelease({ keep = true } = {}) {
  const release = current();
  $("release").value = release.id;
  document.title = `${release.id} – deltahist`;
  $("promise").textContent = `${release.promise}.`;
  $("statement").href = releasePath(release.id);
  $("download").href = `${releasePath(release.id)}/download`;
  $("coordinates").textContent = release.extent ? "(degrees)" : "(coordinates of the plane)";
  const before = ground.map;
  ground.show(release);
  if (ground.map !== before) {
    drawing.attach(ground.map);
    ground.map.on("moveend", () => { state.view = ground.view(); remember(); });
    asked = L.geoJSON(null, { pane: "asked", style: { className: "asked" } }).addTo(ground.map);
  }
  const others = releases.filter(({ id, extent }) => id !== release.id && (extent === null) === (release.extent === null));
  $("compare").replaceChildren(make("option", { value: "" }, "nothing"), ...others.map(({ id }) => make("option", { value: id }, id)));
  if (!others.some(({ id }) => id === state.compare)) state.compare = null;
  $("compare").value = state.compare ?? "";
  $("comparing").hidden = !others.length;
  if (keep && state.view) ground.map.setView([state.view[1], state.view[0]], state.view[2], { animate: false });
  else ground.fit();
  await answer();
}

// Ask of another area: {box}, {polygon} or {features}.
function choose(shape) {
  Object.assign(state, { box: null, polygon: null, features: null, chosen: null }, shape);
  return answer();
}

function collection() {
  if (state.features) return { type: "FeatureCollection", features: state.features };
  const ring = [];
  for (let at = 0; at < state.polygon.length; at += 2) ring.push(state.polygon.slice(at, at + 2));
  const geometry = { type: "Polygon", coordinates: [[...ring, ring[0]]] };
  return { type: "FeatureCollection", features: [{ type: "Feature", properties: {}, geometry }] };
}

async function answer() {
  pending?.abort();
  pending = new AbortController();
  const { signal } = pending;
  remember();
  showShape();
  try {
    if (state.box) await answerBox(signal);
    else if (state.polygon || state.features) await answerShapes(signal);
    else {
      state.answered = null;
      $("answer").replaceChildren(make("p", { class: "pale" }, "Draw a box on the map, or type one below: how many points lie in it?"));
    }
    tell("");
  } catch (problem) {
    if (problem.name === "AbortError") return;
    state.answered = null;
    $("answer").replaceChildren();
    tell(problem.message);
  }
  $("csv").disabled = $("geojson").disabled = !state.answered;
}

async function answerBox(signal) {
  const parameters = { bbox: state.box.join(","), level: state.level, nonnegative: state.nonnegative };
  const names = [state.release, state.compare].filter(Boolean);
  const found = await Promise.all(names.map((name) => get(`${releasePath(name)}/answer`, parameters, signal)));
  const rows = found.map((each, number) => ({ name: names[number], answer: each }));
  $("free").textContent = found[0].cost;
  showAnswer($("answer"), rows);
  const [west, south, east, north] = state.box;
  const ring = [[west, south], [east, south], [east, north], [west, north], [west, south]];
  state.answered = found.map(({ bbox, cost, ...properties }) => ({
    type: "Feature", properties, geometry: { type: "Polygon", coordinates: [ring] },
  }));
}

async function answerShapes(signal) {
  const parameters = { level: state.level, nonnegative: state.nonnegative };
  const names = [state.release, state.compare].filter(Boolean);
  const found = await Promise.all(names.map((name) => ask(`${releasePath(name)}/answers`, collection(), parameters, signal)));
  const all = found.map(({ features }) => features.map(({ properties, ...feature }) => ({
    ...feature, properties: { ...properties, unit: properties.unit ?? "points", level: Number(state.level) },
  })));
  state.answered = all.flatMap((features, number) => features.map((feature) => ({
    ...feature, properties: { release: names[number], ...feature.properties },
  })));
  if (all.length > 1) {
    showAnswer($("answer"), all.flatMap((features, number) => features.slice(0, 100).map(({ properties }, area) => ({
      name: features.length > 1 ? `${nameOf(properties, area)}, ${names[number]}` : names[number], answer: properties,
    }))));
  } else if (all[0].length === 1) showAnswer($("answer"), [{ name: names[0], answer: all[0][0].properties }]);
  else showFeatures($("answer"), all[0], state.chosen, chooseFeature);
}

function chooseFeature(number) {
  state.chosen = number;
  showShape();
  showFeatures($("answer"), state.answered, number, chooseFeature);
}

function showShape() {
  asked.clearLayers();
  if (state.box) {
    const [west, south, east, north] = state.box;
    asked.addLayer(L.rectangle([[south, west], [north, east]], { pane: "asked", className: "asked", interactive: false }));
    ["west", "south", "east", "north"].forEach((name, at) => { form.elements[name].value = Number(state.box[at].toPrecision(8)); });
  } else if (state.polygon || state.features) {
    collection().features.forEach((feature, number) => {
      const layer = L.geoJSON(feature, {
        pane: "asked", interactive: Boolean(state.features),
        style: { className: number === state.chosen ? "asked chosen" : "asked" },
        pointToLayer: (_, place) => L.circleMarker(place, { radius: 5 }),
      });
      layer.on("click", () => state.features.length > 1 && state.answered && chooseFeature(number));
      asked.addLayer(layer);
    });
  }
}

function remember() {
  const { release, compare, way, level, nonnegative, box, polygon, view } = state;
  writeHash({ release, compare, way, level, nonnegative, box, polygon, view });
}

function tell(trouble) {
  $("trouble").textContent = trouble;
  $("trouble").hidden = !trouble;
}

function showMode(mode, hint) {
  for (const name of ["box", "polygon"]) $(name).setAttribute("aria-pressed", mode === name);
  $("finish").hidden = mode !== "polygon";
  $("hint").textContent = hint;
  $("hint").hidden = !hint;
}

async function read(file) {
  try {
    const found = JSON.parse(await file.text());
    const features = found.type === "FeatureCollection" ? found.features
      : [found.type === "Feature" ? found : { type: "Feature", properties: {}, geometry: found }];
    if (!features.length || !features.every((each) => each.geometry?.type)) throw new SyntaxError();
    await choose({ features: features.map(({ geometry, properties }) => ({ type: "Feature", properties: properties ?? {}, geometry })) });
    ground.fit(asked.getBounds());
  } catch (problem) {
    tell(problem instanceof SyntaxError ? `${file.name} is no GeoJSON with areas.` : problem.message);
  }
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", dark);
}

for (const mode of ["box", "polygon"]) {
  $(mode).addEventListener("click", () => (drawing.mode === mode ? drawing.stop() : drawing.start(mode)));
}
$("finish").addEventListener("click", () => drawing.finish());
$("open").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => { if ($("file").files[0]) read($("file").files[0]); $("file").value = ""; });
$("release").addEventListener("change", () => { state.release = $("release").value; showRelease({ keep: false }); });
$("compare").addEventListener("change", () => { state.compare = $("compare").value || null; answer(); });
$("level").addEventListener("change", () => { state.level = $("level").value; answer(); });
$("nonnegative").addEventListener("change", () => { state.nonnegative = $("nonnegative").checked; answer(); });
$("me").addEventListener("click", () => explain(state.release).catch((problem) => tell(problem.message)));
$("close").addEventListener("click", () => $("explanation").close());
$("csv").addEventListener("click", () => save("answers.csv", "text/csv", asTable(state.answered)));
$("geojson").addEventListener("click", () => save("answers.geojson", "application/geo+json",
  JSON.stringify({ type: "FeatureCollection", features: state.answered })));
$("share").addEventListener("click", async () => {
  await navigator.clipboard.writeText(location.href).then(() => ($("share").textContent = "Copied"), () => prompt("Link", location.href));
  setTimeout(() => ($("share").textContent = "Copy link"), 2000);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const box = ["west", "south", "east", "north"].map((name) => Number(form.elements[name].value.replace("\u2212", "-")));
  if (box.some(Number.isNaN)) tell("West, south, east and north must be numbers.");
  else choose({ box });
});
addEventListener("dragover", (event) => { event.preventDefault(); $("stage").dataset.dropping = ""; });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) delete $("stage").dataset.dropping; });
addEventListener("drop", (event) => {
  event.preventDefault();
  delete $("stage").dataset.dropping;
  if (event.dataTransfer.files[0]) read(event.dataTransfer.files[0]);
});
addEventListener("hashchange", () => { Object.assign(state, readHash(), { features: null }); showRelease(); });
$("level").value = state.level;
$("nonnegative").checked = state.nonnegative;
const darkness = matchMedia("(prefers-color-scheme: dark)");
setTheme(darkness.matches);
darkness.addEventListener("change", () => setTheme(darkness.matches));
$("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
begin().catch((problem) => tell(problem.message));
