// The page: what is chosen, asked and shown, and who is told.

import * as L from "./leaflet/leaflet-src.esm.js";
import { asTable, showFound } from "./answers.js";
import { askArea, featuresOf, get, releasePath } from "./api.js";
import { drawLine } from "./chart.js";
import { Density } from "./density.js";
import { $, make, save } from "./dom.js";
import { Drawing } from "./draw.js";
import { Ground } from "./ground.js";
import { readHash, writeHash } from "./hash.js";
import { explain } from "./promise.js";
import { Time } from "./time.js";

const SIDES = ["west", "south", "east", "north"];
const form = $("where");
// Features are those of a file, and crs theirs unless they are in degrees.
const state = { ...readHash(), features: null, crs: null };
// What follows from the state: nothing of it is kept in the address.
const shown = { found: null, chosen: null, mark: null, pending: null };
// What went wrong, in words, by what it is about.
const troubles = { link: "", map: "", answer: "" };
const density = new Density();
const time = new Time((release) => { state.release = release; showRelease(); });
let releases, ground, drawing, asked;

const current = () => releases.find(({ id }) => id === state.release);
// Whether two releases have coordinates of one sort, so that one area may be asked of both.
const alike = (one, other) => one.shape.length === other.shape.length && !one.extent === !other.extent;
const cellsOf = ({ crs, bounds, shape }) => JSON.stringify([crs, bounds, shape]);
// Only releases of the same cells can be compared.
const others = () => releases.filter((other) => other !== current() && !other.withdrawn && cellsOf(other) === cellsOf(current()));
const onLine = () => current().shape.length === 1;

async function begin() {
  const [settings, list] = await Promise.all([get("static/settings.json"), get("releases"), time.load()]);
  releases = list.releases;
  ground = new Ground($("map"), settings);
  drawing = new Drawing($("map"), choose, showMode);
  // A stream is one entry, by its last step: the slider has the others.
  const alone = releases.filter(({ id }) => !time.of(id)).map(({ id, withdrawn }) => [id, withdrawn ? `${id} (withdrawn)` : id]);
  const streams = time.series.map(({ id, steps }) => [steps.at(-1), `${id}, ${steps.length} steps`]);
  $("release").replaceChildren(...[...alone, ...streams].map(([value, words]) => make("option", { value }, words)));
  await showRelease();
}

async function showRelease() {
  state.release ??= (releases.find(({ withdrawn }) => !withdrawn) ?? releases[0]).id;
  const release = current();
  if (!release) return showNothing(`The release '${state.release}' is no longer here.`);
  if (release.withdrawn) return showNothing(sayWithdrawn(release));
  tell("", "link");
  $("level").value = state.level;
  $("nonnegative").checked = state.nonnegative;
  $("release").value = time.of(release.id)?.steps.at(-1) ?? release.id;
  time.show(release.id);
  document.title = `${release.id} – deltahist`;
  $("promise").textContent = `${release.promise}.`;
  $("statement").href = releasePath(release.id);
  $("download").href = `${releasePath(release.id)}/download`;
  $("coordinates").textContent = release.extent ? "in degrees" : "in coordinates of the release";
  showOthers(release);
  document.body.dataset.shows = onLine() ? "line" : "map";
  for (const name of ["south", "north"]) form.elements[name].disabled = onLine();
  $("chart").replaceChildren();
  shown.mark = null;
  if (onLine()) await showLine(release);
  else showMap(release);
  await Promise.all([showDensity(), answer()]);
}

function sayWithdrawn({ id, withdrawn: { date, reason, replacement } }) {
  const end = replacement ? `Use ${replacement} instead.` : "Nothing replaces it so far.";
  return `The release '${id}' was withdrawn on ${date}: ${reason.replace(/\.$/, "")}. ${end}`;
}

// A link may be older than what is served: another release's figures must not be taken for those that it means.
function showNothing(why) {
  shown.pending?.abort();
  shown.found = null;
  $("release").value = current()?.id ?? "";
  document.body.dataset.shows = "nothing";
  tell("", "answer");
  tell("", "map");
  tell(why, "link");
}

function showOthers(release) {
  if (state.compare === release.id) state.compare = null;
  const names = others().map(({ id }) => id);
  if (state.compare && !names.includes(state.compare)) {
    const other = releases.find(({ id }) => id === state.compare);
    if (other?.withdrawn) tell(sayWithdrawn(other), "link");
    else tell(other ? `${state.compare} has other cells than ${release.id}: they cannot be compared.`
      : `The release '${state.compare}' is no longer here: nothing is compared.`, "link");
    state.compare = null;
  }
  $("compare").replaceChildren(make("option", { value: "" }, "nothing"), ...names.map((value) => make("option", { value }, value)));
  $("compare").value = state.compare ?? "";
  $("comparing").hidden = !names.length;
}

async function showLine(release) {
  try {
    const { picture, mark } = await drawLine(release, choose);
    $("chart").replaceChildren(picture);
    shown.mark = mark;
  } catch (problem) {
    $("chart").replaceChildren(make("p", { class: "pale" }, problem.message));
  }
}

function showMap(release) {
  const before = ground.map;
  before?.invalidateSize({ animate: false });
  ground.show(release);
  if (ground.map !== before) {
    drawing.attach(ground.map);
    ground.map.on("moveend", () => { state.view = ground.view(); remember(); });
    asked = L.featureGroup([], { pane: "asked" }).addTo(ground.map);
  }
  if (state.view) ground.map.setView([state.view[1], state.view[0]], state.view[2], { animate: false });
  else ground.fit();
}

function showDensity() {
  $("ways").hidden = !state.compare;
  document.querySelector(`[name=way][value=${state.way}]`).checked = true;
  tell("", "map");
  return onLine() ? null : density.show(ground, state, current().shape, (trouble) => tell(trouble, "map"));
}

// Ask of another area: {box}, {polygon} or {features}.
function choose(shape) {
  Object.assign(state, { box: null, polygon: null, features: null, crs: null }, shape);
  shown.chosen = null;
  return answer();
}

async function answer() {
  shown.pending?.abort();
  shown.pending = new AbortController();
  shown.found = null;
  allowDownload();
  bringNear();
  remember();
  showShape();
  try {
    if (state.box || state.polygon || state.features) {
      shown.found = await askArea(state, shown.pending.signal);
      if (shown.found.found.some(isReplaced)) return await renew();
      allowDownload();
      showFound($("answer"), shown.found, shown.chosen, chooseArea);
    } else $("answer").replaceChildren(make("p", { class: "pale" }, "How many points lie in an area? Draw it, or type a box below."));
    tell("");
    await time.drawSteps(state, shown.pending.signal);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    if (problem.status === 410) { // withdrawn meanwhile
      ({ releases } = await get("releases"));
      return showRelease();
    }
    $("answer").replaceChildren();
    tell(problem.message);
  }
}

const REPLACED = "The release was replaced meanwhile: this is the new one.";
const isReplaced = ({ name, digest }) => digest && digest !== releases.find(({ id }) => id === name)?.digest;

// An answer of a release must not stand beside the map of the one before it.
async function renew() {
  ({ releases } = await get("releases"));
  const done = showRelease();
  tell(REPLACED, "link");
  await done;
  // It goes once the new map is there, and could be read.
  Promise.all([density.drawn, new Promise((read) => setTimeout(read, 3000))]).then(() => {
    if (troubles.link === REPLACED) tell("", "link");
  });
}

// A box has west above east if it lies across 180° of longitude; a polygon goes on beyond it, on the map's side.
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
  $("csv").disabled = $("geojson").disabled = !shown.found;
}

function chooseArea(number) {
  shown.chosen = number;
  showShape();
  showFound($("answer"), shown.found, number, chooseArea);
}

function showShape() {
  const names = state.box?.length === 2 ? ["west", "east"] : SIDES;
  names.forEach((name, at) => { form.elements[name].value = state.box ? Number(state.box[at].toPrecision(8)) : ""; });
  shown.mark?.(state.box);
  asked?.clearLayers();
  if (onLine() || state.crs || !(state.box || state.polygon || state.features)) return;
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
  const { release, compare, way, level, nonnegative, box, polygon, view } = state;
  writeHash({ release, compare, way, level, nonnegative, box, polygon, view });
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
    const found = JSON.parse(await file.text()) ?? {};
    const features = found.type === "FeatureCollection" ? found.features
      : [found.type === "Feature" ? found : { type: "Feature", properties: {}, geometry: found }];
    // A feature without a geometry has no answer, but a note that says so.
    if (!features?.every((each) => each instanceof Object) || !features.some(({ geometry }) => geometry?.type)) throw new SyntaxError();
    const stated = found.crs?.properties?.name;
    const crs = stated && !/CRS84|4326/.test(stated) ? stated : null;
    const code = (name) => /EPSG:.*?(\d+)$/i.exec(name ?? "")?.[1] ?? name;
    if (crs && code(crs) !== code(current().crs)) {
      throw new Error(`${file.name} is in ${crs}: it must be in longitude and latitude${current().crs ? `, or in ${current().crs}` : ""}.`);
    }
    await choose({
      crs, features: features.map(({ id, geometry, properties }) => ({ type: "Feature", id, properties: properties ?? {}, geometry: geometry ?? null })),
    });
    if (crs && shown.found) tell(`The areas are in ${crs}: they are answered, but not drawn.`);
    else if (!onLine()) ground.fitAreas(asked);
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
$("release").addEventListener("change", () => {
  const before = current();
  history.pushState(null, "", location.href); // what was shown is one step back
  Object.assign(state, { release: $("release").value, view: null });
  if (before && (!alike(before, current()) || (state.crs && before.crs !== current().crs))) {
    Object.assign(state, { box: null, polygon: null, features: null, crs: null });
  }
  if (!others().some(({ id }) => id === state.compare)) state.compare = null;
  showRelease();
});
$("compare").addEventListener("change", () => {
  state.compare = $("compare").value || null;
  tell("", "link");
  showDensity();
  answer();
});
$("ways").addEventListener("change", (event) => { state.way = event.target.value; remember(); showDensity(); });
$("level").addEventListener("change", () => { state.level = $("level").value; answer(); });
$("nonnegative").addEventListener("change", () => { state.nonnegative = $("nonnegative").checked; answer(); });
$("me").addEventListener("click", () => explain(state.release).catch((problem) => tell(problem.message)));
$("close").addEventListener("click", () => $("explanation").close());
$("csv").addEventListener("click", () => save("answers.csv", "text/csv", asTable(shown.found.found)));
$("geojson").addEventListener("click", () => save("answers.geojson", "application/geo+json",
  JSON.stringify({ type: "FeatureCollection", crs: state.crs ? { type: "name", properties: { name: state.crs } } : undefined, features: shown.found.found.flatMap(({ features }) => features) })));
$("share").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    $("share").textContent = "Copied";
    setTimeout(() => { $("share").textContent = "Copy link"; }, 2000);
  } catch { // refused, or not there without TLS
    prompt("The link:", location.href);
  }
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const fields = SIDES.map((name) => form.elements[name]).filter(({ disabled }) => !disabled);
  const box = fields.map(({ value }) => Number(value.replace("\u2212", "-")));
  if (box.some(Number.isNaN)) tell(`${fields[box.findIndex(Number.isNaN)].name} must be a number.`);
  else choose({ box });
});
addEventListener("dragover", (event) => { event.preventDefault(); $("stage").dataset.dropping = ""; });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) delete $("stage").dataset.dropping; });
addEventListener("drop", (event) => {
  event.preventDefault();
  delete $("stage").dataset.dropping;
  if (event.dataTransfer.files[0]) read(event.dataTransfer.files[0]);
});
addEventListener("hashchange", () => { Object.assign(state, readHash(), { features: null, crs: null }); showRelease(); });
const darkness = matchMedia("(prefers-color-scheme: dark)");
setTheme(darkness.matches);
darkness.addEventListener("change", () => setTheme(darkness.matches));
$("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
begin().catch((problem) => tell(problem.message));
