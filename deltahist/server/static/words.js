// Numbers and sentences as text.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 6, signDisplay: "negative" });

// Round to multiples of a step, or to some digits. Only 0 itself becomes 0, or an interval above 0 would include it.
export function figure(value, step = 0, digits = 0) {
  let rounded = digits ? Number(value.toPrecision(digits)) : value;
  for (let fine = step; fine > 0; fine /= 10) {
    rounded = Math.round(value / fine) * fine;
    if (rounded || Math.abs(value) < 1e-6) break;
  }
  return plain.format(rounded).replace("-", "\u2212");
}

// Round to the last digit worth at least half a standard error.
export function roundingStep(error) {
  return error > 0 ? Math.min(10 ** Math.floor(Math.log10(error / 2)), 1e9) : 0;
}

export function percent(level) {
  return `${plain.format(Math.round(level * 1000) / 10)}%`;
}

export function intervalOf({ low, high, std_error: error }, joint = " to ") {
  return (low ?? null) === null ? "" : [low, high].map((each) => figure(each, roundingStep(error))).join(joint);
}

export function estimateInWords(answer) {
  if (answer.estimate === null) return ["No answer", answer.note || "the area is not on the map"];
  const step = roundingStep(answer.std_error);
  const unit = answer.estimate === 1 ? answer.unit.replace(/s$/, "") : answer.unit;
  if (!answer.std_error) return [`Exactly ${figure(answer.estimate)} ${unit}`, "published without noise"];
  return [
    `About ${figure(answer.estimate, step)} ${unit}`,
    `between ${intervalOf(answer, " and ")} with ${percent(answer.level)} confidence`,
  ];
}
