// The privacy statement as a dialog: how well an attacker can guess at each distance, and all rows of the statement.

import { $, make } from "./dom.js";
import { get } from "./api.js";

// Explain a release or a series, given its URL.
export async function explain(address) {
  const { statement, delta, distances } = await get(`${address}/explanation`);
  const slider = $("apart");
  slider.max = distances.length - 1;
  slider.value = Math.max(0, distances.findIndex(({ distance }) => distance >= delta * 0.999));
  slider.oninput = () => {
    const { text, label } = distances[slider.value];
    slider.setAttribute("aria-valuetext", label);
    $("for-me").textContent = text;
  };
  slider.oninput();
  $("words").replaceChildren(...statement.flatMap(([label, lines]) => [
    make("h3", {}, label), ...lines.map((text) => make("p", {}, text)),
  ]));
  if (!$("explanation").open) $("explanation").showModal();
}
