// What is promised, in plain words: the curve, a guess between two places, and the statement's paragraphs.

import { $, draw, make } from "./dom.js";
import { get, releasePath } from "./api.js";
import { length, ofHundred } from "./words.js";

const [HEIGHT, LEFT, BOTTOM] = [180, 34, 28];

export async function explain(name) {
  const found = await get(`${releasePath(name)}/explanation`);
  const { distance, guess } = found.curve;
  const slider = $("apart");
  slider.max = distance.length - 1;
  slider.value = Math.max(0, distance.findIndex((each) => each >= found.delta * 0.999));
  const tell = () => {
    const far = length(distance[slider.value], found.unit);
    const share = ofHundred(guess[slider.value]);
    const whether = found.points_per_user === null
      ? `one of your points was recorded where it is or up to ${far} away`
      : `your points were recorded where they are or each up to ${far} away`;
    slider.setAttribute("aria-valuetext", far);
    $("for-me").replaceChildren(
      `Suppose that somebody knows everything else, and only doubts whether ${whether}. With what is published here, their guess is right in `,
      make("strong", {}, share === null ? "nearly all cases" : `at most ${share} of 100 cases`),
      share === null ? ". Over such distances there is hardly any protection." : ". Tossing a coin is right in 50.");
    $("curve").replaceChildren(...drawCurve(found, Number(slider.value)));
  };
  slider.oninput = tell;
  tell();
  $("words").replaceChildren(...Object.entries(found.sections).flatMap(([title, paragraphs]) => [
    make("h3", {}, title), ...paragraphs.map((text) => make("p", {}, text)),
  ]));
  if (!$("explanation").open) $("explanation").showModal();
}

// How often a guess is right, by distance: steps, since a value holds up to its own distance.
function drawCurve({ curve: { distance, guess }, unit, delta }, chosen) {
  const width = Math.min(580, innerWidth - 80);
  const last = distance.at(-1);
  const x = (far) => LEFT + ((width - LEFT - 8) * Math.sqrt(far / last));
  const y = (share) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - 12) * ((share ?? 1) - 0.5)) / 0.5;
  let path = `M${x(0)} ${y(guess[0])}`;
  distance.forEach((far, number) => { path += `V${y(guess[number])}H${x(far)}`; });
  const lines = [0.5, 0.75, 1].flatMap((share) => [
    draw("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(share), y2: y(share) }),
    draw("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share}`),
  ]);
  const ends = [[delta, "middle"], [last, "end"]].map(([far, anchor]) =>
    draw("text", { x: x(far), y: HEIGHT - 10, "text-anchor": anchor }, length(far, unit)));
  const mark = draw("circle", { class: "mark", cx: x(distance[chosen]), cy: y(guess[chosen]), r: 5 });
  const picture = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img",
    "aria-label": "Curve of how often a guess is right at most, by the distance of both places" },
    ...lines, draw("line", { class: "grid", x1: x(delta), x2: x(delta), y1: 12, y2: HEIGHT - BOTTOM }),
    draw("path", { class: "curve", d: path }), mark, ...ends);
  return [picture, make("figcaption", {}, "How often a guess is right at most, in 100 cases, by distance. 50 is tossing a coin.")];
}
