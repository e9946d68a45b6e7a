// The steps of a stream: a slider, a button that moves through them, and a period to sum.

import { get } from "./api.js";
import { $, make } from "./dom.js";

// Sort numbers by value, and dates by text.
const byTime = (one, other) => (one - other) || (one < other ? -1 : 1);

export class Time {
  // choose({release, between}) is called with a step, or with "FIRST,LAST" to sum. It resolves when the map is drawn.
  constructor(choose) {
    Object.assign(this, { series: [], choose, playing: false });
    $("step").addEventListener("input", () => { this.stop(); choose({ release: this.shown[Number($("step").value)] }); });
    $("play").addEventListener("click", () => this.play());
    $("sum").addEventListener("change", () => {
      this.stop();
      choose({ between: $("sum").checked ? `${this.shown[0]},${this.shown.at(-1)}` : null });
    });
    for (const [name, other] of [["from", "to"], ["to", "from"]]) {
      $(name).addEventListener("change", () => {
        if ($("from").selectedIndex > $("to").selectedIndex) $(other).value = $(name).value;
        choose({ between: `${$("from").value},${$("to").value}` });
      });
    }
  }

  async load() {
    const { series } = await get("series");
    this.series = series.map(({ id, cost, published: steps, missing }) => ({ id, cost, steps, missing }));
  }

  of(release) {
    return this.series.find(({ steps }) => steps.includes(release));
  }

  // Return a period of the stream of a release, or null if it is not one.
  check(release, between) {
    const steps = this.of(release)?.steps ?? [];
    const [first, last] = (between ?? "").split(",").map((each) => steps.indexOf(each));
    return first >= 0 && first <= last ? between : null;
  }

  show(release, between) {
    const { steps = [], missing = [] } = this.of(release) ?? {};
    if (!steps.includes(this.shown?.[0])) {
      for (const name of ["from", "to"]) $(name).replaceChildren(...steps.map((each) => make("option", {}, each)));
    }
    this.shown = steps;
    $("time").hidden = steps.length < 2;
    $("step").max = steps.length - 1;
    $("step").value = steps.indexOf(release);
    $("step").setAttribute("aria-valuetext", release);
    [$("first").textContent, $("last").textContent] = [steps[0], steps.at(-1)];
    const [first, last] = (between ?? "").split(",");
    [$("from").value, $("to").value] = between ? [first, last] : [steps[0], steps.at(-1)];
    $("sum").checked = Boolean(between);
    $("one").hidden = Boolean(between);
    $("period").hidden = !between;
    const number = steps.indexOf(last) - steps.indexOf(first) + 1;
    $("time-word").textContent = between ? "Sum over" : "Step";
    $("step-name").textContent = between ? `${number} step${number > 1 ? "s" : ""}` : release;
    const without = between ? missing.filter((each) => byTime(first, each) < 0 && byTime(each, last) < 0) : [];
    $("without").textContent = `Without ${without.join(", ")}, which ${without.length > 1 ? "have" : "has"} no release.`;
    $("without").hidden = !without.length;
  }

  // Move through the steps, one a second, and wait for each to be drawn. If motion is to be reduced, move one step.
  async play() {
    if (this.playing) return this.stop();
    let at = Number($("step").value);
    if (at === this.shown.length - 1) at = -1;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.choose({ release: this.shown[at + 1] });
    const turn = {};
    this.playing = turn;
    $("play").textContent = "Pause";
    while (this.playing === turn && at < this.shown.length - 1) {
      at += 1;
      const pause = new Promise((done) => { setTimeout(done, 1000); });
      await Promise.all([this.choose({ release: this.shown[at] }), pause]);
    }
    if (this.playing === turn) this.stop();
  }

  stop() {
    this.playing = false;
    $("play").textContent = "Play";
  }
}
