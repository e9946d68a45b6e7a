// Four sliders choose one of the releases in figures.js, which tools/explorable.py computes. Nothing is estimated here.

const $ = (id) => document.getElementById(id);
const NAMES = ["cell", "delta", "limit", "epsilon"]; // the order of FIGURES.settings, the last varying fastest
const { grid, start, distances } = FIGURES;
const DIAMETER = distances.at(-1);
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 });
const length = (metres) => (metres < 1000 ? `${number(metres)}\u00a0m` : `${number(metres / 1000)}\u00a0km`);
const visits = (value) => `±${number(Math.round(value))}`;
const share = (guess) => (guess > 999 ? "almost always" : `in at most ${guess / 10} of 100 cases`);
const WORDS = {
  delta: length,
  epsilon: String,
  limit: (limit) => (limit === null ? "none" : `${limit} ε`),
  cell: length,
};

let state = {};

function readHash() {
  const asked = new URLSearchParams(location.hash.slice(1));
  state = { truth: asked.has("truth") };
  for (const name of NAMES) {
    const place = grid[name].findIndex((value) => String(value ?? "none") === asked.get(name));
    state[name] = place < 0 ? grid[name].indexOf(start[name]) : place;
  }
}

function writeHash() {
  const changed = NAMES.filter((name) => grid[name][state[name]] !== start[name])
    .map((name) => `${name}=${grid[name][state[name]] ?? "none"}`);
  history.replaceState(null, "", `#${[...changed, ...(state.truth ? ["truth"] : [])].join("&")}`);
}

// The release at the sliders' setting, or at one that differs from it.
function find(changes = {}) {
  const places = { ...state, ...changes };
  const setting = FIGURES.settings[NAMES.reduce((sum, name) => sum * grid[name].length + places[name], 0)];
  return { ...setting, ...FIGURES.releases[setting.release] };
}

const guessAt = ({ guesses }, metres) => guesses[distances.indexOf(metres)];

function show() {
  const found = find();
  const [cell, delta, limit, epsilon] = NAMES.map((name) => grid[name][state[name]]);
  for (const name of NAMES) {
    const words = WORDS[name](grid[name][state[name]]);
    $(name).value = state[name];
    $(name).setAttribute("aria-valuetext", words);
    $(`${name}-value`).textContent = words;
  }
  $("truth").checked = state.truth;
  describeSettings(found, { cell, delta, limit, epsilon });
  drawMap(found, cell);
  $("reach").setAttribute("r", delta);
  showError(found);
  drawCurve(found, delta);
}

function describeSettings(found, { cell, delta, limit, epsilon }) {
  const near = guessAt(found, delta);
  const [first, last] = [found.guesses[0], found.guesses.at(-1)];
  // Wide cells hide longer moves than δ: the furthest distance at which the guess is no better than at δ.
  const reach = distances.findLast((_, place) => found.guesses[place] <= near);
  const further = reach >= DIAMETER ? " The same holds for all longer moves." : reach > delta ? ` These cells hide moves up to ${length(reach)} as well.` : "";
  $("delta-says").textContent = `Two places ${length(delta)} apart: an attacker’s best guess is right ${share(near)}.${further}`;
  $("epsilon-says").textContent = `Within δ, the release changes an attacker’s odds at most ${number(Math.exp(epsilon))}-fold. Half the ε `
    + `doubles the noise, now ${visits(found.noise)} visits in a district.`;
  const free = find({ limit: grid.limit.indexOf(null) });
  const price = limit === null ? "" : free.release === found.release ? " Removing the limit would not reduce the noise."
    : ` Without the limit, the noise would be ${visits(free.noise)} instead of ${visits(found.noise)}.`;
  $("limit-says").textContent = `Two places at opposite corners, ${length(DIAMETER)} apart: a guess is right ${share(last)}.${price}`;
  $("cell-says").textContent = `Borders of districts cut through cells of ${length(cell)}. Even without noise, a count would be `
    + `off by ${visits(FIGURES.blurs[state.cell])}. Smaller cells need more noise.`;
}

function drawMap({ map }, cell) {
  const digits = state.truth ? FIGURES.truth[state.cell] : map;
  const [wide, high] = FIGURES.shape.map((cells) => (cells * 1000) / cell);
  const colours = [...document.querySelectorAll(".swatch:not(.ring)")].map((each) => getComputedStyle(each).backgroundColor);
  const canvas = $("cells");
  const context = canvas.getContext("2d");
  Object.assign(canvas, { width: wide, height: high }); // this also clears it
  for (let place = 0; place < digits.length; place += 1) {
    if (digits[place] === "0") continue;
    context.fillStyle = colours[digits[place]];
    context.fillRect(place % wide, Math.floor(place / wide), 1, 1);
  }
  const shown = Math.round((100 * [...digits].filter((digit) => digit !== "0").length) / digits.length);
  $("map-title").textContent = state.truth ? "The true map" : "The published map";
  $("meaning").textContent = state.truth ? "Visits per km², the exact counts. They are known because the city is made up."
    : "Visits per km². Cells that noise hides are merged into blocks. On 95 of 100 such maps every coloured block has visits.";
  canvas.setAttribute("aria-label", `${$("map-title").textContent}, coloured on ${shown}% of its area`);
}

function showError({ noise, actual }) {
  const { mean } = FIGURES.districts;
  const blur = FIGURES.blurs[state.cell];
  const expected = Math.hypot(noise, blur);
  const width = (value) => `${Math.min(100, (100 * value) / mean)}%`;
  $("error-value").textContent = `${visits(expected)} visits`;
  $("error-share").textContent = `or ${Math.round((100 * expected) / mean)}% of the ${number(mean)} visits to a district on average`;
  $("expected").style.width = width(expected);
  $("actual").style.left = width(actual);
  $("error-says").textContent = `Expected root mean square error over ${FIGURES.districts.number} districts: ${visits(noise)} from noise and `
    + `${visits(blur)} from cells. About 7 in 10 counts are closer, and a 95% interval is about twice as wide. This release (the upright line) is off by ${visits(actual)}.`;
}

function drawCurve({ guesses }, delta) {
  const svg = $("curve");
  const [wide, high, left, right, top, bottom] = [svg.clientWidth, svg.clientHeight, 34, 14, 12, 40];
  const x = (metres) => left + (wide - left - right) * Math.sqrt(metres / DIAMETER); // so that short distances have room
  const y = (guess) => top + ((high - top - bottom) * (1000 - guess)) / 500;
  // Each figure holds for its distance and for shorter ones down to the one before.
  const path = guesses.map((guess, place) => `V${y(guess)}H${x(distances[place])}`).join("");
  const line = (from, to, name) => `<path class="${name}" d="M${from}L${to}"/>`;
  const text = (at, words, anchor = "middle", name = "") => `<text x="${at[0]}" y="${at[1]}" text-anchor="${anchor}" class="${name}">${words}</text>`;
  const mark = (metres, guess, words) => {
    const low = guess > 900;
    const anchor = metres === DIAMETER ? "end" : "start";
    return line([x(metres), y(500)], [x(metres), y(guess)], "drop") + `<circle cx="${x(metres)}" cy="${y(guess)}" r="5"/>`
      + text([x(metres) + (anchor === "end" ? 4 : 9), y(guess) + (low ? 22 : anchor === "end" ? -10 : 20)], words, anchor, "mark");
  };
  const [near, far] = [guessAt({ guesses }, delta), guesses.at(-1)];
  const told = (guess) => (guess > 999 ? "over 99.9" : guess / 10);
  svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
  svg.innerHTML = [500, 600, 700, 800, 900, 1000].map((guess) => line([left, y(guess)], [wide - right, y(guess)], "grid") + text([left - 6, y(guess) + 4], guess / 10, "end")).join("")
    + (wide < 500 ? [250, 1500, 5000, 10000, 20000] : [250, 1000, 2000, 4000, 8000, 14000, 20000]).map((metres) => text([x(metres), high - bottom + 18], length(metres))).join("")
    + text([left + (wide - left - right) / 2, high - 4], "distance between the two places")
    + `<path class="curve" d="M${x(0)} ${y(guesses[0])}${path}"/>`
    + mark(delta, near, `δ: ${told(near)}`) + mark(DIAMETER, far, `any move: ${told(far)}`);
  svg.setAttribute("aria-label", `Curve of right guesses by distance: ${share(near)} at δ = ${length(delta)}, ${share(far)} for any move`);
}

function setUp() {
  const [east, south] = FIGURES.shape.map((cells) => cells * 1000);
  $("outlines").setAttribute("viewBox", `0 0 ${east} ${south}`);
  $("outlines").innerHTML = FIGURES.districts.outlines.map((ring) => `<polygon points="${ring}"/>`).join("")
    + `<circle id="reach" cx="${east / 2}" cy="${south / 2}"/>`;
  $("map").style.aspectRatio = `${east} / ${south}`;
  const ends = FIGURES.colours;
  const words = ["empty or hidden", ...ends.map((end, place) => (place + 1 < ends.length ? `${end}–${ends[place + 1]}` : `${end} or more`))];
  $("colours").innerHTML = words.map((each, place) => `<li><span class="swatch c${place}"></span>${each}</li>`).join("")
    + '<li><span class="swatch ring"></span>δ around a place</li>';
  const { all, kept, people, most } = FIGURES.visits;
  $("about").textContent = `The city is made up: ${number(people)} people, with at most ${most} visits each kept (${number(kept)} of ${number(all)}). `
    + "Noise is drawn once for each release, so a single one may do better or worse than expected.";
  for (const name of NAMES) {
    Object.assign($(name), { min: 0, max: grid[name].length - 1, step: 1 });
    $(name).addEventListener("input", () => change({ [name]: Number($(name).value) }));
  }
  $("truth").addEventListener("change", () => change({ truth: $("truth").checked }));
  $("reset").addEventListener("click", () => { history.replaceState(null, "", "#"); readHash(); show(); });
  addEventListener("hashchange", () => { readHash(); show(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  new ResizeObserver(show).observe($("curve"));
  readHash();
  show();
}

function change(changes) {
  Object.assign(state, changes);
  writeHash();
  show();
}

setUp();
