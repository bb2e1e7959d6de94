// Elements, texts and messages.

/**
 * Elements of the page that are more than an HTMLElement.
 * @typedef {{audio: HTMLAudioElement, checked: HTMLInputElement, clock: HTMLSelectElement, contrast: HTMLInputElement,
 *   dialog: HTMLDialogElement, floor: HTMLInputElement, "grid-back": HTMLButtonElement,
 *   "grid-more": HTMLButtonElement, "label-filter": HTMLSelectElement, order: HTMLSelectElement,
 *   overview: HTMLCanvasElement, redo: HTMLButtonElement, scale: HTMLSelectElement, search: HTMLInputElement,
 *   "status-filter": HTMLSelectElement, undo: HTMLButtonElement, view: HTMLCanvasElement}} Elements
 */

/** @template {string} Id @param {Id} id @returns {Id extends keyof Elements ? Elements[Id] : HTMLElement} */
export const $ = (id) => {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element ${id}`);
  return /** @type {any} */ (element);
};

/** Creates an element; strings become text, never markup.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name @param {Record<string, any>} [attributes]
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[Name]} */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || (value === false && !key.startsWith("aria-"))) continue;
    if (key.startsWith("aria-")) element.setAttribute(key, String(value));
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "colour") element.style.background = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/** A button that shows the key that does the same.
 * @param {string} text @param {string} key @param {() => unknown} onclick @param {Record<string, any>} [attributes] */
export function keyButton(text, key, onclick, attributes = {}) {
  return make("button", { type: "button", ...attributes, onclick }, text, make("kbd", {}, key));
}

/** @param {number} n @param {string} noun */
export function counted(n, noun) { return `${n.toLocaleString("en")} ${n === 1 ? noun : `${noun}s`}`; }

/** Statuses of events that are judged, in the order of meters and tables. */
export const JUDGED = ["right", "wrong", "unsure", "disputed"];

/** @param {Record<string, number>} counts of events by status */
export function total(counts) { return Object.values(counts).reduce((sum, n) => sum + n, 0); }

/** Sets the widths of the parts of a meter. @param {Element} meter @param {Record<string, number>} counts by status */
export function fillMeter(meter, counts) {
  const all = total(counts);
  for (const status of JUDGED) {
    const part = /** @type {HTMLElement} */ (meter.querySelector(`.${status}`));
    part.style.width = `${all ? (100 * counts[status]) / all : 0}%`;
  }
}

/** Seconds as a position: 3.25, 1:02.5, 2:03:04.
 * @param {number} seconds @param {number} [step] finest difference to show */
export function position(seconds, step = 0.01) {
  const digits = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : step >= 0.001 ? 3 : 4;
  const rounded = Number(Math.max(0, seconds).toFixed(digits));
  const hours = Math.floor(rounded / 3600), minutes = Math.floor((rounded % 3600) / 60);
  const rest = (rounded % 60).toFixed(digits), padded = rest.padStart(digits ? 3 + digits : 2, "0");
  if (hours) return `${hours}:${String(minutes).padStart(2, "0")}:${padded}`;
  return minutes ? `${minutes}:${padded}` : rest;
}

/** A position with its unit: 3.25 s, 1:02.5.
 * @param {number} seconds @param {number} [step] finest difference to show */
export function moment(seconds, step = 0.01) {
  const text = position(seconds, step);
  return text.includes(":") ? text : `${text} s`;
}

/** @param {string} began ISO time without zone @param {number} seconds @param {number} [step] */
export function clockTime(began, seconds, step = 1) {
  const at = new Date(Date.parse(`${began}Z`) + Math.round(seconds * 1000));
  const text = at.toISOString();
  return step >= 1 ? text.slice(11, 19) : text.slice(11, step >= 0.1 ? 21 : step >= 0.01 ? 22 : 23);
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 59.95) return `${seconds < 10 ? seconds.toFixed(2) : seconds.toFixed(1)} s`;
  const rounded = Math.round(seconds), minutes = Math.round(seconds / 60);
  if (rounded < 3600) return `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @param {number} hz */
export function frequency(hz) { return hz >= 1000 ? `${Number((hz / 1000).toFixed(1))} kHz` : `${Math.round(hz)} Hz`; }

/** @type {number | undefined} */
let timer;

/** Shows an error, except that of playback that was stopped before it began. @param {unknown} error */
export function showError(error) {
  if (error instanceof DOMException && error.name === "AbortError") return;
  say(error instanceof Error ? error.message : String(error), true);
}

/** Shows a short message. @param {string} text @param {boolean} [isError] */
export function say(text, isError = false) {
  const box = $("status");
  box.textContent = text;
  box.classList.toggle("error", isError);
  box.classList.add("shown");
  clearTimeout(timer);
  timer = window.setTimeout(() => box.classList.remove("shown"), isError ? 6000 : 2200);
}
