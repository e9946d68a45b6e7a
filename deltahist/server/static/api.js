// Requests to the service; what goes wrong is thrown as words.

async function send(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Error("The service cannot be reached.");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const error = new Error(problem.detail || `The service answered ${response.status}.`);
  error.status = response.status;
  throw error;
}

export async function get(address, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined));
  const response = await send(query.size ? `${address}?${query}` : address, {
    headers: { accept: "application/json, application/geo+json" },
    signal,
  });
  return response.json();
}

export async function ask(address, collection, parameters, signal) {
  const response = await send(`${address}?${new URLSearchParams(parameters)}`, {
    method: "POST",
    headers: { "content-type": "application/geo+json" },
    body: JSON.stringify(collection),
    signal,
  });
  return response.json();
}

export const releasePath = (name) => `releases/${encodeURIComponent(name)}`;
