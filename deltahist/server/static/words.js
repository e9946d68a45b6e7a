// Numbers and sentences as text.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 6 });

export function figure(value, step = 0) {
  const rounded = step > 0 ? Math.round(value / step) * step : value;
  return plain.format(rounded + 0).replace("-", "\u2212");
}

// Round to the last digit worth at least half a standard error.
export function roundingStep(error) {
  return error > 0 ? Math.min(10 ** Math.floor(Math.log10(error / 2)), 1e9) : 0;
}

export function percent(level) {
  return `${plain.format(Math.round(level * 1000) / 10)}%`;
}

export function estimateInWords(answer) {
  if (answer.estimate === null) return ["No answer", answer.note || "the area is not on the map"];
  const step = roundingStep(answer.std_error);
  const unit = answer.estimate === 1 ? answer.unit.replace(/s$/, "") : answer.unit;
  if (!answer.std_error) return [`Exactly ${figure(answer.estimate)} ${unit}`, "published without noise"];
  const [low, high] = [answer.low, answer.high].map((each) => figure(each, step));
  return [
    `About ${figure(answer.estimate, step)} ${unit}`,
    `between ${low} and ${high} with ${percent(answer.level)} confidence`,
  ];
}
