// The state of the page as text after the # of the URL, so that links share it.

const numbers = (text, many) => {
  const found = (text || "").split(",").map(Number);
  return text && found.every(Number.isFinite) && (many === undefined || found.length === many) ? found : null;
};

export function readHash(text = location.hash) {
  const given = new URLSearchParams(text.slice(1));
  const ring = numbers(given.get("polygon"));
  return {
    release: given.get("release"),
    compare: given.get("compare"),
    level: ["0.5", "0.9", "0.99"].includes(given.get("level")) ? given.get("level") : "0.95",
    unbiased: given.get("unbiased") === "true",
    between: given.get("between"),
    districts: given.get("districts") === "true",
    box: numbers(given.get("box"), 4) || numbers(given.get("box"), 2),
    polygon: ring && ring.length >= 6 && ring.length % 2 === 0 ? ring : null,
    view: numbers(given.get("view"), 3),
  };
}

export function writeHash(state) {
  const shown = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    const text = Array.isArray(value) ? value.map((each) => Number(each.toPrecision(10))).join(",") : value;
    if (text && !(name === "level" && text === "0.95")) shown.set(name, text);
  }
  history.replaceState(null, "", `#${shown.toString().replaceAll("%2C", ",")}`);
}
