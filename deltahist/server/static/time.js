// Steps of streams: a slider from one to the next, and the answers of all of them for one area.

import { askArea, get } from "./api.js";
import { $, draw } from "./dom.js";
import { figure, roundingStep } from "./words.js";

const [WIDTH, HEIGHT, FOOT] = [360, 84, 4];
// Answers of more steps than these are not asked for together.
const MOST = 100;

export class Time {
  // choose(name) is called with the release of the step that is chosen.
  constructor(choose) {
    Object.assign(this, { series: [], choose });
    $("step").addEventListener("input", () => choose(this.shown[Number($("step").value)]));
  }

  async load() {
    const { series } = await get("series");
    this.series = await Promise.all(series.map(async ({ id }) => {
      const { steps } = await get(`series/${encodeURIComponent(id)}`);
      return { id, steps: steps.filter(({ release }) => release).map(({ step }) => step) };
    }));
  }

  of(release) {
    return this.series.find(({ steps }) => steps.includes(release));
  }

  show(release) {
    this.shown = this.of(release)?.steps ?? [];
    $("time").hidden = this.shown.length < 2;
    $("step").max = this.shown.length - 1;
    $("step").value = this.shown.indexOf(release);
    $("step").setAttribute("aria-valuetext", release);
    $("step-name").textContent = release;
    $("first").textContent = this.shown[0];
    $("last").textContent = this.shown.at(-1);
  }

  // Draw the answers of all steps for the one area of a state; they are kept until another area is asked.
  async drawSteps(state, signal) {
    const { release, features, ...asked } = state;
    const one = state.box || state.polygon || features?.length === 1;
    if (!one || this.shown.length < 2 || this.shown.length > MOST) return $("steps").replaceChildren();
    const key = JSON.stringify([this.shown, asked.box, asked.polygon, features, asked.level, asked.nonnegative]);
    if (key !== this.key) {
      this.answers = await Promise.all(this.shown.map(async (step) => {
        const { found } = await askArea({ ...state, release: step, compare: null }, signal);
        return found[0].features[0].properties;
      }));
      this.key = key;
    }
    return $("steps").replaceChildren(this.drawAnswers(release));
  }

  drawAnswers(release) {
    const known = this.answers.filter(({ estimate }) => estimate !== null);
    const top = Math.max(1e-9, ...known.map(({ high, estimate }) => high ?? estimate));
    const bottom = Math.min(0, ...known.map(({ low, estimate }) => low ?? estimate));
    const y = (value) => 16 + ((HEIGHT - FOOT - 16) * (top - value)) / (top - bottom);
    const wide = WIDTH / this.shown.length;
    const marks = this.answers.flatMap(({ estimate, low, high }, number) => {
      if (estimate === null) return [];
      const middle = (number + 0.5) * wide;
      const target = draw("rect", { class: "target", x: number * wide, y: 0, width: wide, height: HEIGHT });
      target.addEventListener("click", () => this.choose(this.shown[number]));
      return [
        draw("rect", { class: this.shown[number] === release ? "step now" : "step", x: number * wide + wide * 0.15, width: wide * 0.7,
          y: Math.min(y(0), y(estimate)), height: Math.abs(y(estimate) - y(0)) }),
        draw("line", { class: "whisker", x1: middle, x2: middle, y1: y(low ?? estimate), y2: y(high ?? estimate) }), target,
      ];
    });
    return draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "Answers of all steps with their intervals" },
      draw("text", { x: 0, y: 10 }, `all steps, up to ${figure(top, roundingStep(top / 5))}`),
      draw("line", { class: "zero", x1: 0, x2: WIDTH, y1: y(0), y2: y(0) }), ...marks);
  }
}
