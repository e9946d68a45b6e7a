// Answers in words, as bars, as tables and as files.

import { draw, make } from "./dom.js";
import { estimateInWords, figure, intervalOf, percent, roundingStep } from "./words.js";

const [WIDTH, TALL] = [360, 22];

// Draw bars of answers on one scale, which includes 0.
function drawBars(answers) {
  const known = answers.filter(({ estimate }) => estimate !== null);
  const ends = (answer) => [answer.low ?? answer.estimate, answer.high ?? answer.estimate];
  const low = Math.min(0, ...known.flatMap(ends));
  const high = Math.max(0, ...known.flatMap(ends));
  const x = (value) => 6 + ((WIDTH - 12) * (value - low)) / (high - low || 1);
  const marks = known.flatMap((answer, number) => {
    const middle = 12 + TALL * number;
    const [from, to] = ends(answer).map(x);
    const at = x(answer.estimate);
    return [
      draw("rect", { class: "amount", x: Math.min(x(0), at), y: middle - 2, width: Math.abs(at - x(0)), height: 4 }),
      draw("rect", { class: "interval", x: from, y: middle - 7, width: Math.max(1, to - from), height: 14, rx: 3 }),
      draw("line", { class: "estimate", x1: at, x2: at, y1: middle - 9, y2: middle + 9 }),
    ];
  });
  const foot = 8 + TALL * known.length;
  // Omit a figure next to 0 if there is no room for both.
  const shown = [...new Set([low, 0, high])].filter((value) => value === 0 || Math.abs(x(value) - x(0)) > 40);
  const figures = shown.map((value) => draw("text", {
    x: x(value), y: foot + 16, "text-anchor": value === low ? "start" : value === high ? "end" : "middle",
  }, figure(value, roundingStep((high - low) / 50))));
  const zero = draw("line", { class: "zero", x1: x(0), x2: x(0), y1: 2, y2: foot + 3 });
  return draw("svg", { class: "bars", viewBox: `0 0 ${WIDTH} ${foot + 20}`, "aria-hidden": "true" }, zero, ...marks, ...figures);
}

function notesOf(answers) {
  const found = answers.map(({ note }) => note);
  if (answers.length === 1 && answers[0].low < 1e-6 && answers[0].std_error) {
    found.push("The interval includes 0, so the area may be empty.");
  }
  if (answers[0].estimates === "unbiased" && answers[0].estimate < 0) {
    found.push("Noise can make unbiased estimates negative. Keep the sign when you add them up.");
  }
  return [...new Set(found.filter(Boolean))].map((text) => make("p", { class: "note" }, text));
}

function showOne(answer) {
  const [first, second] = estimateInWords(answer);
  const words = make("p", { class: "words" }, make("strong", {}, first), " ", make("span", {}, second));
  return answer.estimate === null ? [words] : [words, drawBars([answer]), ...notesOf([answer])];
}

function showCompared(found, answers) {
  const rows = answers.map((answer, number) => make("tr", {}, make("th", { scope: "row" }, found[number].name), ...cells(answer)));
  return [
    make("table", {}, heading(["release", "points", `${percent(answers[0].level)} interval`]), make("tbody", {}, ...rows)),
    drawBars(answers), ...notesOf(answers),
    make("p", { class: "note" }, "Differences are of unbiased estimates, so they may not equal those of the figures above."),
  ];
}

function heading(names) {
  return make("thead", {}, make("tr", {}, ...names.map((each) => make("th", { scope: "col" }, each))));
}

function cells(answer) {
  if (answer.estimate === null) return [make("td", { colspan: 2 }, answer.note || "not on the map")];
  return [figure(answer.estimate, roundingStep(answer.std_error)), intervalOf(answer)].map((each) => make("td", {}, each));
}

// Show the answers for one area. If there are several, show the chosen one above a list, and call `choose` on clicks.
export function showFound(place, { found, problem }, chosen, choose) {
  const last = found.at(-1);
  const many = last.features.length > 1;
  const number = many ? chosen : 0;
  const parts = [];
  if (number !== null) {
    const answers = found.map(({ features }) => features[number].properties);
    parts.push(...(answers.length > 1 ? showCompared(found, answers) : showOne(answers[0])));
  }
  if (problem) parts.push(make("p", { class: "note" }, `The difference cannot be shown with an error: ${problem}.`));
  if (many) parts.push(listAreas(last, chosen, choose));
  place.replaceChildren(...parts);
}

function listAreas({ name, features }, chosen, choose) {
  const rows = features.slice(0, 500).map((feature, number) => {
    const { properties } = feature;
    const pick = make("button", { type: "button", class: "link", "aria-pressed": String(number === chosen) }, nameOf(feature, number));
    pick.addEventListener("click", () => choose(number));
    return make("tr", { class: number === chosen && "chosen" }, make("th", { scope: "row" }, pick), ...cells(properties));
  });
  const words = `${figure(features.length)} areas, ${name}. Do not add standard errors: query the union instead.`;
  const table = make("table", {}, make("caption", {}, words),
    heading(["area", "points", `${percent(features[0].properties.level)} interval`]), make("tbody", {}, ...rows));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Answers for all areas" }, table);
}

// Return a feature's first property that is a string, or else its number.
function nameOf({ id, properties: { release, unit, note, estimator, estimates, ...own } }, number) {
  const named = Object.values(own).find((value) => value && typeof value === "string");
  return String(named ?? id ?? `area ${number + 1}`).slice(0, 60);
}
