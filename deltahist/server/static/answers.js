// Answers in words, as a bar, and as a table; and as files.

import { draw, make } from "./dom.js";
import { changeInWords, estimateInWords, figure, percent, roundingStep } from "./words.js";

const WIDTH = 360;

// The bar of one or more answers on one scale, which holds 0.
function drawBars(rows) {
  const known = rows.filter(({ answer }) => answer.estimate !== null);
  const low = Math.min(0, ...known.map(({ answer }) => answer.low ?? answer.estimate));
  const high = Math.max(0, ...known.map(({ answer }) => answer.high ?? answer.estimate));
  const x = (value) => 6 + ((WIDTH - 12) * (value - low)) / (high - low || 1);
  const tall = 22;
  const marks = known.flatMap(({ answer }, number) => {
    const middle = 12 + tall * number;
    const [from, to] = [x(answer.low ?? answer.estimate), x(answer.high ?? answer.estimate)];
    return [
      draw("rect", { class: "amount", x: Math.min(x(0), x(answer.estimate)), y: middle - 2,
        width: Math.abs(x(answer.estimate) - x(0)), height: 4 }),
      draw("rect", { class: "interval", x: from, y: middle - 7, width: Math.max(1, to - from), height: 14, rx: 3 }),
      draw("line", { class: "estimate", x1: x(answer.estimate), x2: x(answer.estimate), y1: middle - 9, y2: middle + 9 }),
    ];
  });
  const foot = 8 + tall * known.length;
  const ends = [...new Set([low, 0, high])].map((value) =>
    draw("text", { x: x(value), y: foot + 16, "text-anchor": value === low ? "start" : value === high ? "end" : "middle" },
      figure(value, roundingStep((high - low) / 50))));
  const zero = draw("line", { class: "zero", x1: x(0), x2: x(0), y1: 2, y2: foot + 3 });
  return draw("svg", { class: "bars", viewBox: `0 0 ${WIDTH} ${foot + 20}`, "aria-hidden": "true" }, zero, ...marks, ...ends);
}

function details(answer) {
  const rows = [
    ["Estimate", figure(answer.estimate, roundingStep(answer.std_error / 10 || 0))],
    ["Standard error", figure(answer.std_error, roundingStep(answer.std_error / 10))],
    ["Interval", `${percent(answer.level)}`],
    ["Estimator", answer.estimates],
  ].filter(([, value]) => value !== undefined);
  return make("dl", {}, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function notes(answer) {
  const found = [answer.note];
  if (answer.low <= 0 && answer.std_error) {
    found.push("The interval holds 0: it may be that nobody is there.");
  }
  if (answer.estimate < 0) found.push("Noise can make small figures negative; leave them so when adding up.");
  return found.filter(Boolean).map((text) => make("p", { class: "note" }, text));
}

export function showAnswer(place, rows, difference) {
  if (rows.length === 1 && !difference) {
    const [{ answer }] = rows;
    const [first, second] = estimateInWords(answer);
    const known = answer.estimate !== null;
    place.replaceChildren(
      make("p", { class: "words" }, make("strong", {}, first), " ", make("span", {}, second)),
      ...(known ? [drawBars(rows), details(answer)] : []), ...notes(known ? answer : {}),
    );
    return;
  }
  const all = difference ? [...rows, { name: "difference", answer: difference }] : rows;
  place.replaceChildren(
    ...(difference ? [make("p", { class: "words" }, make("strong", {}, changeInWords(difference, rows.map(({ name }) => name))))] : []),
    make("table", {},
      make("thead", {}, make("tr", {}, ...["", "points", "interval"].map((each) => make("th", { scope: "col" }, each)))),
      make("tbody", {}, ...all.map(({ name, answer }) => make("tr", {},
        make("th", { scope: "row" }, name), ...cells(answer))))),
    drawBars(all),
    ...[...new Set(all.map(({ answer }) => answer.note).filter(Boolean))].map((text) => make("p", { class: "note" }, text)),
  );
}

function cells(answer) {
  if (answer.estimate === null) return [make("td", { colspan: 2 }, answer.note || "not on the map")];
  const step = roundingStep(answer.std_error);
  const range = answer.low === null || answer.low === undefined
    ? "" : `${figure(answer.low, step)} to ${figure(answer.high, step)}`;
  return [make("td", {}, figure(answer.estimate, step)), make("td", {}, range)];
}

// A table of the answers to many features; choose(number) is called for the row that is chosen.
export function showFeatures(place, features, chosen, choose) {
  const rows = features.slice(0, 500).map(({ properties }, number) => {
    const pick = make("button", { type: "button", class: "link", "aria-pressed": number === chosen }, nameOf(properties, number));
    pick.addEventListener("click", () => choose(number));
    return make("tr", { class: number === chosen && "chosen" }, make("th", { scope: "row" }, pick), ...cells(properties));
  });
  const table = make("table", {},
    make("caption", {}, `${figure(features.length)} areas. Do not add up standard errors: ask for the union instead.`),
    make("thead", {}, make("tr", {}, ...["area", "points", "interval"].map((each) => make("th", { scope: "col" }, each)))),
    make("tbody", {}, ...rows));
  const list = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Answers for all areas" }, table);
  const before = make("div");
  if (chosen !== null) showAnswer(before, [{ name: "", answer: features[chosen].properties }]);
  place.replaceChildren(before, list);
}

export function nameOf(properties, number) {
  const key = Object.keys(properties || {}).find((each) => /name|label|title|^id$/i.test(each));
  const text = key === undefined ? "" : String(properties[key] ?? "").slice(0, 60);
  return text || `area ${number + 1}`;
}

const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

export function asTable(features) {
  const names = [...new Set(features.flatMap(({ properties }) => Object.keys(properties)))];
  const lines = [names, ...features.map(({ properties }) => names.map((name) => {
    const value = properties[name] ?? "";
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    return typeof value === "string" && /^[=+\-@]/.test(text) ? `'${text}` : text; // no formula in a spreadsheet
  }))];
  return lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
}
