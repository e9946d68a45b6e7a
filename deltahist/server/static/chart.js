// A release on a line: its cells as bars with their intervals, from which a part is drawn.

import { get, releasePath } from "./api.js";
import { draw } from "./dom.js";
import { figure } from "./words.js";

const [HEIGHT, FOOT] = [380, 40];
// As of #chart text in style.css.
const FONT = "13px system-ui, sans-serif";

// Return a picture and a function that marks a part of the line; done({box: [low, high]}) gets the part that is drawn.
export async function drawLine({ id, shape, bounds: [low, high] }, done) {
  const width = Math.min(760, innerWidth - 16);
  const { unit, ends: [ends], estimate, low: lows, high: highs, stands_out: certain } =
    await get(`${releasePath(id)}/cells`, { width: Math.ceil(shape[0] / 256), errors: true });
  const bars = estimate.map((value, number) => {
    const [from, to] = ends.slice(number, number + 2).map((end) => low + (end * (high - low)) / shape[0]);
    const wide = to - from;
    return { from, to, certain: certain[number], density: value / wide, low: lows[number] / wide, high: highs[number] / wide };
  });
  const top = Math.max(...bars.map((each) => each.high));
  const bottom = Math.min(0, ...bars.map((each) => each.low));
  const rounded = (value, digits) => figure(Number(value.toPrecision(digits)));
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = FONT;
  const side = Math.ceil(Math.max(32, pen.measureText(rounded(top, 2)).width)) + 12;
  const x = (value) => side + ((width - side - 16) * (value - low)) / (high - low);
  const y = (value) => 24 + ((HEIGHT - FOOT - 24) * (top - value)) / (top - bottom);
  const marks = bars.flatMap((each) => {
    const middle = x((each.from + each.to) / 2);
    return [
      draw("rect", { class: each.certain ? "bar" : "bar faint", x: x(each.from), width: Math.max(0.5, x(each.to) - x(each.from) - 0.5),
        y: Math.min(y(0), y(each.density)), height: Math.abs(y(each.density) - y(0)) }),
      draw("line", { class: "whisker", x1: middle, x2: middle, y1: y(each.low), y2: y(each.high) }),
    ];
  });
  const shares = width > 500 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1];
  const ticks = shares.map((share) => [share, low + share * (high - low)]).map(([share, value]) =>
    draw("text", { x: x(value), y: HEIGHT - 14, "text-anchor": share === 1 ? "end" : "middle" }, rounded(value, 4)));
  const heights = [0, top].map((value) =>
    draw("text", { x: side - 8, y: y(value) + 4, "text-anchor": "end" }, rounded(value, 2)));
  const part = draw("rect", { class: "part", y: 24, height: HEIGHT - FOOT - 24, width: 0 });
  const picture = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": "Cells of the line with their intervals" },
    draw("text", { x: side, y: 14 }, `${unit}; paler where it may be noise`), part, ...marks, ...ticks, ...heights,
    draw("line", { class: "zero", x1: side, x2: width - 16, y1: y(0), y2: y(0) }));
  const mark = (box) => {
    part.setAttribute("x", box ? x(box[0]) : 0);
    part.setAttribute("width", box ? x(box[1]) - x(box[0]) : 0);
  };
  let start = null;
  const place = ({ clientX, clientY }) => {
    const at = new DOMPoint(clientX, clientY).matrixTransform(picture.getScreenCTM().inverse()).x;
    const value = low + ((at - side) * (high - low)) / (width - side - 16);
    return Math.min(high, Math.max(low, Number(value.toPrecision(4))));
  };
  const between = (event) => [start, place(event)].sort((a, b) => a - b);
  picture.addEventListener("pointerdown", (event) => { start = place(event); picture.setPointerCapture(event.pointerId); });
  picture.addEventListener("pointermove", (event) => start !== null && mark(between(event)));
  picture.addEventListener("pointerup", (event) => {
    const box = start === null ? [0, 0] : between(event);
    start = null;
    if (box[0] < box[1]) done({ box });
  });
  return { picture, mark };
}
