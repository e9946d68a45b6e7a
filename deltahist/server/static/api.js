// Requests to the service; what goes wrong is thrown as words.

export const releasePath = (name) => `releases/${encodeURIComponent(name)}`;

async function send(address, parameters, options) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value ?? false));
  let response;
  try {
    response = await fetch(`${address}?${query}`, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Error("The service cannot be reached.");
  }
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({}));
  throw Object.assign(new Error(problem.detail || `The service answered ${response.status}.`), { status: response.status });
}

export function get(address, parameters = {}, signal = undefined) {
  return send(address, parameters, { headers: { accept: "application/json, application/geo+json" }, signal });
}

function post(address, collection, parameters, signal) {
  const headers = { "content-type": "application/geo+json" };
  return send(address, parameters, { method: "POST", headers, body: JSON.stringify(collection), signal });
}

function ringOf(polygon) {
  const ring = [];
  for (let at = 0; at < polygon.length; at += 2) ring.push(polygon.slice(at, at + 2));
  return [...ring, ring[0]];
}

export function featuresOf({ box, polygon, features }) {
  if (features) return features;
  let geometry;
  if (box?.length === 2) geometry = { type: "LineString", coordinates: box.map((each) => [each, 0]) };
  else {
    const [west, south, end, north] = box ?? [];
    const east = end < west ? end + 360 : end; // across 180° of longitude
    const ring = ringOf(polygon ?? [west, south, east, south, east, north, west, north]);
    geometry = { type: "Polygon", coordinates: [ring] };
  }
  return [{ type: "Feature", properties: {}, geometry }];
}

// Ask for what is in an area: a list of {name, digest, features}, of a release, the one that it is compared with, and the
// difference. Where these two have no joint error, `problem` says why, and there is no difference.
export async function askArea(state, signal) {
  const { release, compare, level, nonnegative, crs } = state;
  const one = async (name, other) => {
    const parameters = { level, nonnegative: nonnegative || null, compare: other };
    if (!state.box) {
      const collection = { type: "FeatureCollection", features: featuresOf(state) };
      const found = await post(`${releasePath(name)}/answers`, collection, { ...parameters, crs }, signal);
      return found;
    }
    const { bbox, answers, cost, ...properties } =
      await get(`${releasePath(name)}/answer`, { ...parameters, bbox: state.box.join(",") }, signal);
    return { digest: properties.digest, features: [{ ...featuresOf(state)[0], properties }] };
  };
  const labelled = (name, { digest, features }) => ({
    name, digest, features: features.map(({ properties, ...feature }) => ({
      ...feature,
      properties: { release: name, ...properties, unit: properties.unit ?? "points", level: Number(level) },
    })),
  });
  const names = [release, compare].filter(Boolean);
  const sets = await Promise.all(names.map((name) => one(name, null)));
  const found = sets.map((set, number) => labelled(names[number], set));
  if (!compare) return { found, problem: "" };
  try {
    found.push(labelled(`${compare} minus ${release}`, await one(release, compare)));
    return { found, problem: "" };
  } catch (problem) {
    if (problem.status !== 400) throw problem;
    return { found, problem: problem.message };
  }
}
