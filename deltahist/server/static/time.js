// A slider through the steps of a stream.

import { get } from "./api.js";
import { $ } from "./dom.js";

export class Time {
  // choose(name) is called with the release of the chosen step.
  constructor(choose) {
    Object.assign(this, { series: [] });
    $("step").addEventListener("input", () => choose(this.shown[Number($("step").value)]));
  }

  async load() {
    const { series } = await get("series");
    this.series = series.map(({ id, cost, published: steps }) => ({ id, cost, steps }));
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
    [$("first").textContent, $("last").textContent] = [this.shown[0], this.shown.at(-1)];
  }
}
