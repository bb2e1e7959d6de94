// Requests to the server of the review. All addresses are relative to the page's, which contains the token.

/**
 * @typedef {{id: string, recording: number, name: string, label: string, onset: number, offset: number,
 *   confidence: number | null, status: string, source: string, byStretch: boolean, verdicts: Record<string, string>,
 *   given?: {label: string, onset: number, offset: number}, note?: string, score?: string}} ReviewEvent
 * @typedef {{index: number, name: string, checked: boolean, empty: [number, number][], note: string,
 *   counts: Record<string, number>, duration?: number, began?: string | null, problem?: string | null,
 *   rate?: number}} Recording
 */

export class ServerError extends Error {}

/** @type {(reachable: boolean) => void} */
let onReachable = () => {};

/** @param {(reachable: boolean) => void} callback */
export function watchServer(callback) { onReachable = callback; }

/**
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    onReachable(false);
    throw new ServerError("the server does not respond; is earmark review still running?");
  }
  onReachable(true);
  if (!response.ok) {
    let message = `the server answered ${response.status}`;
    try { message = (await response.json()).error ?? message; } catch { /* not JSON */ }
    throw new ServerError(message);
  }
  return response;
}

let changes = 0;

/** Says that events or recordings have changed: what is being loaded is loaded again. */
export function setChanged() { changes += 1; }

/**
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} [values]
 * @returns {Promise<any>}
 */
export async function get(path, values = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString(), address = `api/${path}${text ? `?${text}` : ""}`;
  for (;;) {
    const before = changes, answer = await (await request(address)).json();
    if (changes === before) return answer;
  }
}

/** @param {string} path @returns {Promise<Uint8Array>} */
export async function getBytes(path) {
  return new Uint8Array(await (await request(`api/${path}`)).arrayBuffer());
}

/** @param {string} path @param {unknown} body @returns {Promise<Response>} */
export function post(path, body) {
  const headers = { "content-type": "application/json" };
  return request(`api/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
}

/** An id for an action, so that its request can be repeated safely. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Sends an action, a second time if the connection broke: because of its id, it counts only once.
 * @param {Record<string, unknown>} action @returns {Promise<any>} */
export async function act(action) {
  const body = { id: newId(), ...action };
  try {
    return await (await post("actions", body)).json();
  } catch (error) {
    if (!(error instanceof ServerError) || !error.message.startsWith("the server does not")) throw error;
    await new Promise((resolve) => setTimeout(resolve, 400));
    return (await post("actions", body)).json();
  }
}

/** Downloads the file in a response. @param {Response} response @param {string} fallback name of the file */
async function download(response, fallback) {
  const name = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "")?.[1];
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name ?? fallback;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** @param {string} format @param {string} which */
export async function saveExport(format, which) {
  await download(await request(`api/export?${new URLSearchParams({ format, which })}`), `${which}.${format}`);
}

/** @param {string[]} events ids @param {string} kind */
export async function saveSnippets(events, kind) {
  await download(await post("snippets", { events, kind, margin: 0.5 }), "snippets.zip");
}
