// The page: its state, queries and output.

import * as L from "./leaflet/leaflet-src.esm.js";
import { showFound } from "./answers.js";
import { askArea, featuresOf, get, releasePath, seriesPath } from "./api.js";
import { Density, night } from "./density.js";
import { Districts } from "./districts.js";
import { $, make, save } from "./dom.js";
import { Drawing } from "./draw.js";
import { Ground } from "./ground.js";
import { readHash, writeHash } from "./hash.js";
import { explain } from "./promise.js";
import { Search } from "./search.js";
import { Time } from "./time.js";

const SIDES = ["west", "south", "east", "north"];
const form = $("where");
const state = { ...readHash(), features: null }; // features come from a file
// Derived from the state, and not part of the URL.
const shown = { found: null, chosen: null, pending: null };
// Error messages by subject.
const troubles = { link: "", map: "", answer: "" };
const density = new Density();
const districts = new Districts();
const search = new Search();
const time = new Time((chosen) => { Object.assign(state, chosen); return showRelease(); });
let settings, releases, ground, drawing, asked;

const current = () => releases.find(({ id }) => id === state.release);
// Releases of a chain share a title, so the name stays.
const nameOf = ({ id, about }) => (about.title ? `${about.title} (${id})` : id);
// Whether two releases have the same kind of coordinates, so that one area can be queried in both.
const alike = (one, other) => one.shape.length === other.shape.length && !one.extent === !other.extent;
const cellsOf = ({ crs, bounds, shape }) => JSON.stringify([crs, bounds, shape]);
// Only releases with the same cells can be compared.
const others = () => releases.filter((other) => other !== current() && !other.withdrawn && cellsOf(other) === cellsOf(current()));
const onLine = () => current().shape.length === 1;
// The source of what is shown: a release, or the sum over a period of its stream.
const source = () => (state.between
  ? { address: seriesPath(time.of(state.release).id), parameters: { between: state.between, missing: "skip" }, label: state.between.replace(",", " to ") }
  : { address: releasePath(state.release), parameters: {}, label: state.release });
const haveDistricts = () => !onLine() && settings.districts === (current().extent ? "degrees" : "plane");
// The promise of a stream covers all its steps together.
const promised = () => (time.of(state.release) ? seriesPath(time.of(state.release).id) : releasePath(state.release));

async function begin() {
  [settings] = await Promise.all([get("static/settings.json"), readReleases()]);
  ground = new Ground($("map"), settings);
  drawing = new Drawing($("map"), choose, showMode);
  // A stream has one entry, for its last step. The slider offers the others.
  const alone = releases.filter(({ id }) => !time.of(id)).map((each) => [each.id, nameOf(each) + (each.withdrawn ? " (withdrawn)" : "")]);
  const streams = time.series.map(({ id, steps }) => {
    const { about } = releases.find((each) => each.id === steps.at(-1));
    return [steps.at(-1), `${nameOf({ id, about })}, ${steps.length} steps`];
  });
  $("release").replaceChildren(...[...alone, ...streams].map(([value, words]) => make("option", { value }, words)));
  await showRelease();
}

async function readReleases() {
  [{ releases }] = await Promise.all([get("releases"), time.load()]);
}

async function showRelease() {
  state.release ??= (releases.find(({ withdrawn, shape }) => !withdrawn && shape.length < 3) ?? releases[0]).id;
  const release = current();
  if (release?.shape.length > 2) return showNothing(`Release ${release.id} has three axes, so there is no map. Query it over HTTP.`);
  if (!release || release.withdrawn) return get(releasePath(state.release)).catch((problem) => showNothing(problem.message));
  tell("", "link");
  $("level").value = state.level;
  $("unbiased").checked = state.unbiased;
  state.between = time.check(release.id, state.between);
  time.show(release.id, state.between);
  const { title = source().label, ...facts } = release.about;
  document.title = `${title} – deltahist`;
  $("about-title").textContent = title;
  $("facts").replaceChildren(...Object.entries(facts).map(([name, text]) => make("p", { class: "pale" }, `${name}: ${text}`)));
  const series = time.of(release.id);
  $("release").value = series?.steps.at(-1) ?? release.id;
  $("promise").textContent = [series?.cost, `${release.promise}.`].filter(Boolean).join(" In each of them: ");
  $("statement").href = promised();
  $("download").href = `${releasePath(release.id)}/download`;
  $("coordinates").textContent = release.extent ? "in degrees" : "in coordinates of the release";
  $("download").hidden = Boolean(state.between);
  showOthers(release);
  document.body.dataset.shows = onLine() ? "line" : "map";
  for (const name of ["south", "north"]) form.elements[name].disabled = onLine();
  if (!onLine()) showMap(release);
  await Promise.all([showDensity(), answer()]);
}

// A link may refer to a release that is gone. It must not show the figures of another release.
function showNothing(why) {
  shown.pending?.abort();
  shown.found = null;
  $("release").value = current()?.id ?? "";
  shown.drawing = null;
  $("stage").removeAttribute("aria-busy");
  document.body.dataset.shows = "nothing";
  tell("", "answer");
  tell("", "map");
  tell(why, "link");
}

function showOthers(release) {
  if (state.compare === release.id || state.between) state.compare = null;
  const names = others().map(({ id }) => id);
  if (state.compare && !names.includes(state.compare)) {
    tell(`${release.id} cannot be compared with ${state.compare}: its cells differ, or it is no longer served.`, "link");
    state.compare = null;
  }
  $("compare").replaceChildren(make("option", { value: "" }, "nothing"), ...others().map((each) => make("option", { value: each.id }, nameOf(each))));
  $("compare").value = state.compare ?? "";
  $("comparing").hidden = !names.length || Boolean(state.between);
}

function showMap(release) {
  const before = ground.map;
  before?.invalidateSize({ animate: false });
  ground.show(release);
  search.attach(ground);
  if (ground.map !== before) {
    drawing.attach(ground.map);
    ground.map.on("moveend", () => { state.view = ground.view(); remember(); });
    asked = L.featureGroup([], { pane: "asked" }).addTo(ground.map);
  }
  if (state.view) ground.map.setView([state.view[1], state.view[0]], state.view[2], { animate: false });
  else ground.fit();
}

// Dim the old map until the new one is drawn.
async function showDensity() {
  tell("", "map");
  if (onLine()) return;
  const chosen = haveDistricts() && state.districts;
  $("parts").hidden = !haveDistricts();
  $("by-cells").setAttribute("aria-pressed", String(!chosen));
  $("by-districts").setAttribute("aria-pressed", String(chosen));
  (chosen ? density : districts).hide();
  shown.drawing = {};
  const { drawing: turn } = shown;
  $("stage").setAttribute("aria-busy", "true");
  await (chosen ? districts : density).show(ground, source(), state, current(), (trouble) => tell(trouble, "map"));
  if (turn === shown.drawing) $("stage").removeAttribute("aria-busy");
}

// Query another area: {box}, {polygon} or {features}.
async function choose(shape) {
  Object.assign(state, { box: null, polygon: null, features: null }, shape);
  shown.chosen = null;
  await answer();
  // On a telephone the answer is below the map.
  $("answering").scrollIntoView({ block: "nearest" });
}

async function answer() {
  shown.pending?.abort();
  shown.pending = new AbortController();
  const { pending } = shown;
  shown.found = null;
  allowDownload();
  bringNear();
  remember();
  showShape();
  $("answer").setAttribute("aria-busy", "true");
  try {
    if (state.box || state.polygon || state.features) {
      shown.found = await askArea(state, source(), pending.signal);
      if (shown.found.found.some(isReplaced)) return await renew();
      allowDownload();
      showFound($("answer"), shown.found, shown.chosen, chooseArea);
    } else $("answer").replaceChildren(make("p", { class: "pale" }, "How many points are in an area? Draw the area, or enter a box below."));
    tell("");
  } catch (problem) {
    if (problem.name === "AbortError") return;
    if (problem.status === 410) { // withdrawn meanwhile
      await readReleases();
      return showRelease();
    }
    $("answer").replaceChildren();
    tell(problem.message);
  } finally {
    if (pending === shown.pending) $("answer").removeAttribute("aria-busy");
  }
}

// Never show an answer from one release next to the map of another.
const isReplaced = ({ name, digest }) => digest && digest !== releases.find(({ id }) => id === name)?.digest;

async function renew() {
  await readReleases();
  await showRelease();
  tell("The release was replaced. This page shows the new one.", "link");
}

// A box across 180° of longitude has west above east. A polygon continues beyond 180°, on the side of the map.
function bringNear() {
  if (onLine() || ground.plane) return;
  const turns = (away) => 360 * Math.floor((away + 180) / 360);
  if (state.box) {
    const [west, south, east, north] = state.box;
    const turn = turns(west);
    state.box = [west - turn, south, east - turn - (east - turn > 180 ? 360 : 0), north];
  } else if (state.polygon) {
    const across = state.polygon.filter((_, at) => at % 2 === 0);
    const turn = turns((Math.min(...across) + Math.max(...across)) / 2 - ground.bounds.getCenter().lng);
    state.polygon = state.polygon.map((each, at) => (at % 2 ? each : each - turn));
  }
}

function allowDownload() {
  $("geojson").disabled = !shown.found;
}

function chooseArea(number) {
  shown.chosen = number;
  showShape();
  showFound($("answer"), shown.found, number, chooseArea);
}

function showShape() {
  const names = state.box?.length === 2 ? ["west", "east"] : SIDES;
  names.forEach((name, at) => { form.elements[name].value = state.box ? Number(state.box[at].toPrecision(8)) : ""; });
  asked?.clearLayers();
  if (onLine() || !(state.box || state.polygon || state.features)) return;
  const many = state.features?.length > 1;
  featuresOf(state).forEach((feature, number) => {
    const layer = L.geoJSON(feature, {
      pane: "asked", interactive: many, coordsToLatLng: ground.place,
      style: { className: number === shown.chosen ? "asked chosen" : "asked" },
      pointToLayer: (_, place) => L.circleMarker(place, { radius: 5 }),
    });
    if (many) layer.on("click", () => shown.found && chooseArea(number));
    asked.addLayer(layer);
  });
}

function remember() {
  const { features, ...linked } = state;
  writeHash(linked);
}

function tell(trouble, about = "answer") {
  troubles[about] = trouble;
  $("trouble").textContent = [...new Set(Object.values(troubles))].filter(Boolean).join(" ");
  $("trouble").hidden = !$("trouble").textContent;
}

function showMode(mode, hint) {
  for (const name of ["box", "polygon"]) $(name).setAttribute("aria-pressed", mode === name);
  $("finish").hidden = mode !== "polygon";
  $("hint").textContent = hint;
  $("hint").hidden = !hint;
}

async function read(file) {
  if (!current()) return;
  try {
    const found = JSON.parse(await file.text());
    const features = found.features ?? [found.type === "Feature" ? found : { geometry: found }];
    // A feature without a geometry gets a note instead of an answer.
    await choose({ features: features.map(({ id, geometry = null, properties }) => ({ type: "Feature", id, properties: properties ?? {}, geometry })) });
    if (!onLine()) ground.fitAreas(asked);
  } catch {
    tell(`${file.name} is not a GeoJSON file with areas.`);
  }
}

for (const mode of ["box", "polygon"]) {
  $(mode).addEventListener("click", () => (drawing.mode === mode ? drawing.stop() : drawing.start(mode)));
}
$("finish").addEventListener("click", () => drawing.finish());
$("open").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => { if ($("file").files[0]) read($("file").files[0]); $("file").value = ""; });
$("release").addEventListener("change", () => {
  const before = current();
  history.pushState(null, "", location.href); // so that going back shows the previous release
  time.stop();
  Object.assign(state, { release: $("release").value, between: null, view: null });
  if (before && !alike(before, current())) Object.assign(state, { box: null, polygon: null, features: null });
  if (!others().some(({ id }) => id === state.compare)) state.compare = null;
  showRelease();
});
$("compare").addEventListener("change", () => {
  state.compare = $("compare").value || null;
  tell("", "link");
  showDensity();
  answer();
});
night.addEventListener("change", showDensity);
for (const [name, chosen] of [["by-cells", false], ["by-districts", true]]) {
  $(name).addEventListener("click", () => { state.districts = chosen; remember(); showDensity(); });
}
for (const name of ["level", "unbiased"]) {
  $(name).addEventListener("change", () => {
    Object.assign(state, { level: $("level").value, unbiased: $("unbiased").checked });
    if (state.districts) showDensity();
    answer();
  });
}
$("me").addEventListener("click", () => explain(promised()).catch((problem) => tell(problem.message)));
$("close").addEventListener("click", () => $("explanation").close());
$("geojson").addEventListener("click", () => save("answers.geojson", "application/geo+json",
  JSON.stringify({ type: "FeatureCollection", features: shown.found.found.flatMap(({ features }) => features) })));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const fields = SIDES.map((name) => form.elements[name]).filter(({ disabled }) => !disabled);
  choose({ box: fields.map(({ value }) => Number(value)) });
});
addEventListener("dragover", (event) => { event.preventDefault(); $("stage").dataset.dropping = ""; });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) delete $("stage").dataset.dropping; });
addEventListener("drop", (event) => {
  event.preventDefault();
  delete $("stage").dataset.dropping;
  if (event.dataTransfer.files[0]) read(event.dataTransfer.files[0]);
});
addEventListener("hashchange", () => { time.stop(); Object.assign(state, readHash(), { features: null }); showRelease(); });
begin().catch((problem) => tell(problem.message));
