// What is promised, in plain words: a guess between two places, and the statement's paragraphs.

import { $, make } from "./dom.js";
import { get } from "./api.js";
import { length, ofHundred } from "./words.js";

// Explain a release or a series, whose address is given.
export async function explain(address) {
  const found = await get(`${address}/explanation`);
  const { distance, guess } = found.curve;
  const slider = $("apart");
  slider.max = distance.length - 1;
  slider.value = Math.max(0, distance.findIndex((each) => each >= found.delta * 0.999));
  slider.oninput = () => {
    const far = length(distance[slider.value], found.unit);
    const share = ofHundred(guess[slider.value]);
    const points = found.points_per_user === null ? "one of your points was" : "your points were each";
    slider.setAttribute("aria-valuetext", far);
    $("for-me").replaceChildren(
      `Suppose that somebody knows everything else, and only doubts whether ${points} recorded where it is or up to ${far} away`,
      found.steps ? ` at each of ${found.steps} steps. From all of these together, ` : ". With what is published here, ",
      "their guess is right in ", make("strong", {}, share === null ? "nearly all cases" : `at most ${share} of 100 cases`),
      share === null ? ". Over such distances there is hardly any protection." : ". Tossing a coin is right in 50.");
  };
  slider.oninput();
  $("words").replaceChildren(...Object.entries(found.sections).flatMap(([title, paragraphs]) => [
    make("h3", {}, title), ...paragraphs.map((text) => make("p", {}, text)),
  ]));
  if (!$("explanation").open) $("explanation").showModal();
}
