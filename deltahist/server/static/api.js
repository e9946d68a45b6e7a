// Requests to the service. Errors contain its message.

export const releasePath = (name) => `releases/${encodeURIComponent(name)}`;
export const seriesPath = (name) => `series/${encodeURIComponent(name)}`;

export async function get(address, parameters = {}, options = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value ?? false));
  let response;
  try {
    response = await fetch(`${address}?${query}`, { headers: { accept: "application/json" }, ...options });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Error("The service is not responding.");
  }
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({}));
  throw Object.assign(new Error(problem.detail || `The service returned status ${response.status}.`), { status: response.status });
}

export function featuresOf({ box, polygon, features }) {
  if (features) return features;
  let geometry;
  if (box?.length === 2) geometry = { type: "LineString", coordinates: box.map((each) => [each, 0]) };
  else {
    const [west, south, end, north] = box ?? [];
    const east = end < west ? end + 360 : end; // across 180° of longitude
    const flat = polygon ?? [west, south, east, south, east, north, west, north];
    const ring = flat.flatMap((each, at) => (at % 2 ? [] : [[each, flat[at + 1]]]));
    geometry = { type: "Polygon", coordinates: [[...ring, ring[0]]] };
  }
  return [{ type: "Feature", properties: {}, geometry }];
}

// Query an area. Return {name, digest, features} for a source {address, parameters, label}, the release to compare with,
// and their difference. If the error of the difference is unknown, there is no difference, and `problem` says why.
export async function askArea(state, source, signal) {
  const { compare, level, unbiased } = state;
  const ask = async ({ address, parameters: own, label }, other) => {
    const parameters = { ...own, level, compare: other, nonnegative: !unbiased && !other };
    let found;
    if (state.box) {
      const { bbox, ...properties } = await get(`${address}/answer`, { ...parameters, bbox: state.box.join(",") }, { signal });
      found = { digest: properties.digest, features: [{ ...featuresOf(state)[0], properties }] };
    } else {
      const body = JSON.stringify({ type: "FeatureCollection", features: featuresOf(state) });
      const headers = { "content-type": "application/geo+json" };
      found = await get(`${address}/answers`, parameters, { method: "POST", headers, body, signal });
    }
    const features = found.features.map(({ properties, ...feature }) => ({
      ...feature, properties: { release: label, ...properties, unit: "points", level: Number(level) },
    }));
    return { name: label, digest: found.digest, features };
  };
  const other = { address: releasePath(compare), label: compare };
  const found = await Promise.all((compare ? [source, other] : [source]).map((each) => ask(each, null)));
  if (!compare) return { found, problem: "" };
  try {
    return { found: [...found, await ask({ ...source, label: `${compare} minus ${source.label}` }, compare)], problem: "" };
  } catch (problem) {
    if (problem.status !== 400) throw problem;
    return { found, problem: problem.message };
  }
}
