// Dialogs: keys, labels, notes, progress, export, history. Names are always text.

import { get, saveExport } from "./api.js";
import { classColour } from "./colours.js";
import { $, counted, make, moment, say } from "./text.js";

/** Opens the dialog; resolves when it is closed. @param {string} title @param {...Node} content @returns {Promise<void>} */
export function open(title, ...content) {
  const dialog = $("dialog");
  $("dialog-title").textContent = title;
  $("dialog-body").replaceChildren(...content);
  if (!dialog.open) dialog.showModal();
  /** @type {HTMLElement | null} */
  const first = $("dialog-body").querySelector("input, textarea, select, button.primary");
  first?.focus();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    resolve();
    setTimeout(() => { // the browser has put the focus back where it was by then, if that was somewhere
      /** @type {HTMLElement | null} */
      const card = document.querySelector(".grid-mode:not([hidden]) .card[tabindex='0']");
      if (!dialog.open && document.activeElement === document.body) (card ?? $("view")).focus({ preventScroll: true });
    });
  }, { once: true }));
}

export function close() { const dialog = $("dialog"); if (dialog.open) dialog.close(); }
export function isOpen() { return $("dialog").open; }

export const KEYS = [
  ["Verdicts", [
    ["Y", "right"], ["X", "wrong"], ["U", "unsure"], ["Backspace", "withdraw the verdict"], ["E", "correct the label"],
    ["[ ]", "move the onset earlier, later"], ["{ }", "move the offset earlier, later"], ["V", "settle a disagreement: then Y, X or U"], ["T", "note on the event"],
  ]],
  ["Missed events", [
    ["A", "add an event: the selection, or around the playhead"], ["N", "no other events in the selection or the view"], ["M", "recording checked"], ["Z", "undo"], ["Shift Z", "redo"],
  ]],
  ["Listening", [["Space", "play or stop"], ["Shift Space", "play from the playhead"], ["L", "loop"], ["S", "speed: 1, \u00bd, \u00bc"], ["B", "band-pass to the event"]]],
  ["Moving", [
    ["J K", "next, previous event"], ["\u2190 \u2192", "move the view"], ["+ \u2212", "zoom"], ["F", "zoom to the event"], ["W", "whole recording"],
    ["D", "next recording"], ["G", "grid or recording"], ["R", "refresh the queue"],
  ]],
  ["Page", [["P", "progress per class"], ["H", "history"], ["O", "export"], ["C", "seconds or clock time"], ["Esc", "clear the selection"], ["?", "this list"]]],
];

export function showKeys() {
  const groups = KEYS.map(([title, keys]) => make("section", {}, make("h3", {}, /** @type {string} */ (title)),
    make("dl", {}, ...(/** @type {string[][]} */ (keys)).flatMap(([key, what]) => [make("dt", {}, ...key.split(" ").flatMap((part, k) => [k ? " " : "", make("kbd", {}, part)])), make("dd", {}, what)]))));
  return open("Keys", make("div", { class: "keys-table" }, ...groups), make("p", { class: "muted" },
    "Drag over the spectrogram to select an interval; drag the edges of an event to move them. The wheel zooms; Shift and the wheel scroll. In the grid, the arrow keys and Page Up and Page Down move, Enter selects, and G opens the recording of a snippet."));
}

/**
 * Asks for a class by typing part of its name.
 * @param {string[]} classes @param {string} title @param {string} [current] @returns {Promise<string | null>}
 */
export async function askLabel(classes, title, current = "") {
  /** @type {string | null} */
  let answer = null;
  const input = make("input", { class: "wide-input", id: "label-input", role: "combobox", "aria-expanded": "true", "aria-controls": "label-choices", autocomplete: "off", placeholder: "type a name" });
  const list = make("ul", { class: "choices", id: "label-choices", role: "listbox" });
  /** @type {string[]} */
  let choices = [];
  let at = 0;
  const render = () => {
    const text = input.value.trim(), lower = text.toLowerCase();
    const starting = classes.filter((label) => label.toLowerCase().startsWith(lower)), within = classes.filter((label) => !starting.includes(label) && label.toLowerCase().includes(lower));
    choices = [...starting, ...within];
    if (text && !classes.includes(text)) choices.push(text);
    at = Math.min(at, Math.max(0, choices.length - 1));
    list.replaceChildren(...choices.map((label, k) => make("li", { role: "option", id: `choice-${k}`, "aria-selected": k === at, onclick: () => choose(label) },
      make("span", { class: "swatch", colour: classColour(classes.indexOf(label)) }), label, classes.includes(label) ? null : make("span", { class: "muted" }, "new class"), label === current ? make("span", { class: "muted" }, "now") : null)));
    input.setAttribute("aria-activedescendant", `choice-${at}`);
    list.children[at]?.scrollIntoView({ block: "nearest" });
  };
  /** @param {string} label */
  const choose = (label) => { answer = label; close(); };
  input.addEventListener("input", () => { at = 0; render(); });
  input.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") { e.preventDefault(); at = Math.min(choices.length - 1, Math.max(0, at + (e.key === "ArrowDown" ? 1 : -1))); render(); }
    if (e.key === "Enter") { e.preventDefault(); if (choices[at]) choose(choices[at]); }
  });
  render();
  await open(title, input, list);
  return answer;
}

/** @param {string} title @param {string} text @param {string} [hint] @param {boolean} [isLine] whether Enter saves @returns {Promise<string | null>} */
export async function askText(title, text, hint = "", isLine = false) {
  /** @type {string | null} */
  let answer = null;
  /** @type {HTMLElement & {value: string}} */
  const area = isLine ? make("input", { class: "wide-input", maxlength: 200, "aria-label": title }) : make("textarea", { maxlength: 4000, "aria-label": title });
  area.value = text;
  const save = () => { answer = area.value; close(); };
  area.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => { if (e.key === "Enter" && (isLine || e.ctrlKey || e.metaKey)) { e.preventDefault(); save(); } });
  await open(title, area, make("div", { class: "row end" }, hint ? make("span", { class: "muted small" }, hint) : null, make("button", { type: "button", class: "primary", onclick: save }, "Save")));
  return answer;
}

/** @param {any} progress */
export function showProgress(progress) {
  const row = (/** @type {any} */ one) => {
    const total = one.open + one.right + one.wrong + one.unsure + one.disputed, judged = one.right + one.wrong;
    const meter = make("div", { class: "meter" }, ...["right", "wrong", "unsure", "disputed"].map((status) => { const part = make("i", { class: status }); part.style.width = `${total ? (100 * one[status]) / total : 0}%`; return part; }));
    return make("tr", {}, make("td", {}, one.label ?? "all"), make("td", {}, meter), ...["right", "wrong", "unsure", "disputed", "open"].map((status) => make("td", {}, one[status].toLocaleString("en"))), make("td", {}, judged ? precision(one.right, judged) : "\u2013"));
  };
  const head = make("tr", {}, ...["class", "", "right", "wrong", "unsure", "disputed", "open", "right of judged"].map((text) => make("th", {}, text)));
  const reviewers = Object.entries(progress.reviewers).map(([name, n]) => `${name} ${n}`).join(", ");
  return open("Progress", make("table", {}, make("thead", {}, head), make("tbody", {}, ...progress.classes.map(row), row(progress.total))),
    make("p", { class: "muted" }, `${progress.checked} of ${counted(progress.recordings, "recording")} checked. Actions: ${reviewers || "none yet"}.${progress.damaged ? ` ${counted(progress.damaged, "line")} of the journal could not be read.` : ""} The share with its 95% interval (Wilson) is that of the events that were judged; it estimates that of all events only if they were judged in random order.`),
    make("div", { class: "row" }, make("button", { type: "button", onclick: () => void showHistory() }, "History", make("kbd", {}, "H"))));
}

/** Share of right verdicts with its Wilson interval. @param {number} right @param {number} n */
function precision(right, n) {
  const z = 1.96, p = right / n, centre = (p + (z * z) / (2 * n)) / (1 + (z * z) / n), half = (z / (1 + (z * z) / n)) * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n));
  const percent = (/** @type {number} */ share) => Math.round(100 * Math.min(1, Math.max(0, share)));
  return `${percent(p)}% (${percent(centre - half)}\u2013${percent(centre + half)})`;
}

/** @param {any} session @param {string[]} ids selected events @param {(kind: string) => void} saveSnippets */
export function showExport(session, ids, saveSnippets) {
  const which = make("select", { id: "export-which" }, ...Object.entries(session.which).map(([name, what]) => make("option", { value: name }, `${name}: ${what}`)));
  const format = make("select", { id: "export-format" }, ...session.formats.map((/** @type {any} */ one) => make("option", { value: one.name }, one.perRecording ? `${one.name}, a file for each recording (zip)` : one.name)));
  const save = async () => {
    try { await saveExport(format.value, which.value); close(); say("Saved"); } catch (error) { say(String(/** @type {Error} */ (error).message), true); }
  };
  const sound = session.audio.map((/** @type {string} */ kind) => make("button", { type: "button", disabled: !ids.length, onclick: () => { saveSnippets(kind); close(); } }, `Save as ${kind}`));
  return open("Export",
    make("section", {}, make("h3", {}, "Events"), make("div", { class: "row" }, which, format, make("button", { type: "button", class: "primary", id: "export-save", onclick: save }, "Save"))),
    make("section", {}, make("h3", {}, "Audio"), make("div", { class: "row" }, make("span", {}, `${counted(ids.length, "event")}: the selected ones in the grid, or this one`), ...sound)),
    make("p", { class: "muted" }, `Verdicts are also in ${session.folder}: verdicts.jsonl has every action, verdicts.csv the labels for earmark train and earmark evaluate.`));
}

export async function showHistory() {
  const { actions } = await get("history", { count: 200 });
  const rows = actions.map((/** @type {any} */ one) => make("tr", {}, make("td", {}, new Date(one.time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" })), make("td", {}, one.reviewer), make("td", {}, describe(one), one.counts ? null : make("span", { class: "muted" }, " (undone)"))));
  return open("History", make("table", { class: "words" }, make("thead", {}, make("tr", {}, ...["when", "who", "what"].map((text) => make("th", {}, text)))), make("tbody", {}, ...rows)));
}

/** @param {any} one */
function describe(one) {
  const event = one.events?.[0];
  if (one.action === "verdict") {
    const isMoved = (one.onset ?? event.onset) !== event.onset || (one.offset ?? event.offset) !== event.offset;
    const change = `${one.label && one.label !== event.label ? ` as ${one.label}` : ""}${isMoved ? " with other edges" : ""}`;
    return `${one.verdict}${change}: ${one.total > 1 ? counted(one.total, "event") : `${event.label} at ${moment(event.onset)} of ${event.recording}`}`;
  }
  if (one.action === "add") return `added ${one.label} at ${moment(one.onset)} of ${one.recording}`;
  if (one.action === "stretch") return `${one.empty ? "nothing else" : "open again"} from ${moment(one.onset)} to ${moment(one.offset)} of ${one.recording}`;
  if (one.action === "checked") return `${one.checked ? "checked" : "not checked"}: ${one.recording}`;
  if (one.action === "note") return `note on ${one.event ? "an event of " : ""}${one.recording}`;
  return one.action;
}
