// Dialogs: keys, labels, notes, progress, export, history. Names are always text.

import { get, saveExport } from "./api.js";
import { classColour } from "./colours.js";
import { $, counted, fillMeter, JUDGED, keyButton, make, moment, say, showError } from "./text.js";

/** Opens the dialog; resolves when it is closed.
 * @param {string} title @param {...Node} content @returns {Promise<void>} */
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
    setTimeout(restoreFocus); // after the browser has moved the focus back to where it was, if it was somewhere
  }, { once: true }));
}

/** Moves the focus to the grid or the recording, unless it is somewhere. */
function restoreFocus() {
  if ($("dialog").open || document.activeElement !== document.body) return;
  /** @type {HTMLElement | null} */
  const card = document.querySelector(".grid-mode:not([hidden]) .card[tabindex='0']");
  (card ?? $("view")).focus({ preventScroll: true });
}

export function close() { const dialog = $("dialog"); if (dialog.open) dialog.close(); }
export function isOpen() { return $("dialog").open; }

/** @type {[string, [string, string][]][]} */
const KEYS = [
  ["Verdicts", [
    ["Y", "right"],
    ["X", "wrong"],
    ["U", "unsure"],
    ["Backspace", "withdraw the verdict"],
    ["E", "correct the label"],
    ["[ ]", "move the onset earlier, later"],
    ["{ }", "move the offset earlier, later"],
    ["V", "settle a disagreement: then Y, X or U"],
    ["T", "note on the event"],
  ]],
  ["Missed events", [
    ["A", "add an event: the selection, or around the playhead"],
    ["N", "no other events in the selection or the view"],
    ["M", "recording checked"],
    ["Z", "undo"],
    ["Shift Z", "redo"],
  ]],
  ["Listening", [
    ["Space", "play or stop"],
    ["Shift Space", "play from the playhead"],
    ["L", "loop"],
    ["S", "speed: 1, \u00bd, \u00bc"],
    ["B", "band-pass to the event"],
  ]],
  ["Moving", [
    ["J K", "next, previous event"],
    ["\u2190 \u2192", "move the view"],
    ["+ \u2212", "zoom"],
    ["F", "zoom to the event"],
    ["W", "whole recording"],
    ["D", "next recording"],
    ["G", "grid or recording"],
    ["R", "refresh the queue"],
  ]],
  ["Page", [
    ["P", "progress per class"],
    ["H", "history"],
    ["O", "export"],
    ["C", "seconds or clock time"],
    ["Esc", "clear the selection"],
    ["?", "this list"],
  ]],
];

const POINTER = "Drag over the spectrogram to select an interval; drag the edges of an event to move them. The wheel " +
  "zooms; Shift and the wheel scroll. In the grid, the arrow keys and Page Up and Page Down move, Enter selects, and " +
  "G opens the recording of a snippet.";

export function showKeys() {
  const groups = KEYS.map(([title, keys]) => {
    const list = make("dl");
    for (const [combination, effect] of keys) {
      const parts = combination.split(" ").flatMap((key, k) => [k ? " " : "", make("kbd", {}, key)]);
      list.append(make("dt", {}, ...parts), make("dd", {}, effect));
    }
    return make("section", {}, make("h3", {}, title), list);
  });
  return open("Keys", make("div", { class: "keys-table" }, ...groups), make("p", { class: "muted" }, POINTER));
}

/**
 * Asks for a class by typing part of its name.
 * @param {string[]} classes @param {string} title @param {string} [current] @returns {Promise<string | null>}
 */
export async function askLabel(classes, title, current = "") {
  /** @type {string | null} */
  let answer = null;
  const input = make("input", {
    class: "wide-input", id: "label-input", role: "combobox", "aria-expanded": "true", "aria-controls": "label-choices",
    autocomplete: "off", placeholder: "type a name",
  });
  const list = make("ul", { class: "choices", id: "label-choices", role: "listbox" });
  /** @type {string[]} */
  let choices = [];
  let at = 0;
  /** @param {string} label */
  const choose = (label) => { answer = label; close(); };
  /** @param {string} label @param {number} k */
  const choice = (label, k) => {
    const attributes = { role: "option", id: `choice-${k}`, "aria-selected": k === at, onclick: () => choose(label) };
    return make("li", attributes, make("span", { class: "swatch", colour: classColour(classes.indexOf(label)) }), label,
      !classes.includes(label) && make("span", { class: "muted" }, "new class"),
      label === current && make("span", { class: "muted" }, "now"));
  };
  const render = () => {
    choices = matching(classes, input.value.trim());
    at = Math.min(at, Math.max(0, choices.length - 1));
    list.replaceChildren(...choices.map(choice));
    input.setAttribute("aria-activedescendant", `choice-${at}`);
    list.children[at]?.scrollIntoView({ block: "nearest" });
  };
  input.addEventListener("input", () => { at = 0; render(); });
  input.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (step === undefined && e.key !== "Enter") return;
    e.preventDefault();
    if (step !== undefined) {
      at = Math.min(choices.length - 1, Math.max(0, at + step));
      render();
    } else if (choices[at]) choose(choices[at]);
  });
  render();
  await open(title, input, list);
  return answer;
}

/** Classes that contain a text, those that start with it first; then the text itself, as a new class.
 * @param {string[]} classes @param {string} text */
function matching(classes, text) {
  const lower = text.toLowerCase();
  const starting = classes.filter((label) => label.toLowerCase().startsWith(lower));
  const within = classes.filter((label) => !starting.includes(label) && label.toLowerCase().includes(lower));
  return [...starting, ...within, ...(text && !classes.includes(text) ? [text] : [])];
}

/** @param {string} title @param {string} text @param {string} [hint] @param {boolean} [isLine] whether Enter saves
 * @returns {Promise<string | null>} */
export async function askText(title, text, hint = "", isLine = false) {
  /** @type {string | null} */
  let answer = null;
  const field = isLine
    ? make("input", { class: "wide-input", maxlength: 200, "aria-label": title })
    : make("textarea", { maxlength: 4000, "aria-label": title });
  field.value = text;
  const save = () => { answer = field.value; close(); };
  /** @type {HTMLElement} */ (field).addEventListener("keydown", (e) => {
    if (e.key !== "Enter" || !(isLine || e.ctrlKey || e.metaKey)) return;
    e.preventDefault();
    save();
  });
  const button = make("button", { type: "button", class: "primary", onclick: save }, "Save");
  const note = hint && make("span", { class: "muted small" }, hint);
  await open(title, field, make("div", { class: "row end" }, note, button));
  return answer;
}

/** @param {any} progress */
export function showProgress(progress) {
  const head = ["class", "", "right", "wrong", "unsure", "disputed", "not judged", "right of judged"];
  const rows = [...progress.classes, { ...progress.total, label: "all" }].map(({ label, ...counts }) => {
    const meter = make("div", { class: "meter" }, ...JUDGED.map((status) => make("i", { class: status })));
    fillMeter(meter, counts);
    const numbers = [...JUDGED, "open"].map((status) => make("td", {}, counts[status].toLocaleString("en")));
    const share = make("td", {}, precision(counts.right, counts.right + counts.wrong));
    return make("tr", {}, make("td", {}, label), make("td", {}, meter), ...numbers, share);
  });
  const reviewers = Object.entries(progress.reviewers).map(([name, n]) => `${name} ${n}`).join(", ");
  const notes = [
    `${progress.checked} of ${counted(progress.recordings, "recording")} checked. Actions: ${reviewers || "none yet"}.`,
    progress.damaged ? `${counted(progress.damaged, "line")} of the journal could not be read.` : "",
    "The share with its 95% interval (Wilson) is that of the events that were judged; it estimates that of all " +
      "events only if they were judged in random order.",
  ];
  return open("Progress", table(head, rows), make("p", { class: "muted" }, notes.filter(Boolean).join(" ")),
    make("div", { class: "row" }, keyButton("History", "H", () => void showHistory().catch(showError))));
}

/** Share of right verdicts with its Wilson interval. @param {number} right @param {number} n */
function precision(right, n) {
  if (!n) return "\u2013";
  const z2 = 1.96 ** 2, p = right / n;
  const centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const half = Math.sqrt(z2 * ((p * (1 - p)) / n + z2 / (4 * n * n))) / (1 + z2 / n);
  const percent = (/** @type {number} */ share) => Math.round(100 * Math.min(1, Math.max(0, share)));
  return `${percent(p)}% (${percent(centre - half)}\u2013${percent(centre + half)})`;
}

/** @param {any} session @param {string[]} ids selected events @param {(kind: string) => unknown} saveSnippets */
export function showExport(session, ids, saveSnippets) {
  const which = make("select", { id: "export-which" });
  for (const [name, what] of Object.entries(session.which)) {
    which.append(make("option", { value: name }, `${name}: ${what}`));
  }
  const format = make("select", { id: "export-format" });
  for (const { name, perRecording } of session.formats) {
    format.append(make("option", { value: name }, perRecording ? `${name}, a file for each recording (zip)` : name));
  }
  const save = () => saveExport(format.value, which.value).then(() => { close(); say("Saved"); }).catch(showError);
  const saveButton = make("button", { type: "button", class: "primary", id: "export-save", onclick: save }, "Save");
  const sound = session.audio.map((/** @type {string} */ kind) => {
    const onclick = () => { saveSnippets(kind); close(); };
    return make("button", { type: "button", disabled: !ids.length, onclick }, `Save as ${kind}`);
  });
  const selected = `${counted(ids.length, "event")}: the selected ones in the grid, or this one`;
  const files = `Verdicts are also in ${session.folder}: verdicts.jsonl has every action, verdicts.csv the labels ` +
    "for earmark train and earmark evaluate.";
  return open("Export",
    make("section", {}, make("h3", {}, "Events"), make("div", { class: "row" }, which, format, saveButton)),
    make("section", {}, make("h3", {}, "Audio"), make("div", { class: "row" }, make("span", {}, selected), ...sound)),
    make("p", { class: "muted" }, files));
}

export async function showHistory() {
  const { actions } = await get("history", { count: 200 });
  const rows = actions.map((/** @type {any} */ one) => {
    const when = new Date(one.time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    const undone = !one.counts && make("span", { class: "muted" }, " (undone)");
    return make("tr", {}, make("td", {}, when), make("td", {}, one.reviewer), make("td", {}, describe(one), undone));
  });
  return open("History", table(["when", "who", "what"], rows, { class: "words" }));
}

/** @param {string[]} head @param {Node[]} rows @param {Record<string, any>} [attributes] */
function table(head, rows, attributes = {}) {
  const heading = make("tr", {}, ...head.map((text) => make("th", {}, text)));
  return make("table", attributes, make("thead", {}, heading), make("tbody", {}, ...rows));
}

/** An action of the history in words. @param {any} one @returns {string} */
function describe(one) {
  const interval = () => `from ${moment(one.onset)} to ${moment(one.offset)} of ${one.recording}`;
  switch (one.action) {
    case "verdict": {
      const [event] = one.events;
      const isMoved = (one.onset ?? event.onset) !== event.onset || (one.offset ?? event.offset) !== event.offset;
      const label = one.label && one.label !== event.label ? ` as ${one.label}` : "";
      const place = `${event.label} at ${moment(event.onset)} of ${event.recording}`;
      const what = one.total > 1 ? counted(one.total, "event") : place;
      return `${one.verdict}${label}${isMoved ? " with other edges" : ""}: ${what}`;
    }
    case "add": return `added ${one.label} at ${moment(one.onset)} of ${one.recording}`;
    case "stretch": return `${one.empty ? "nothing else" : "open again"} ${interval()}`;
    case "checked": return `${one.checked ? "checked" : "not checked"}: ${one.recording}`;
    case "note": return `note on ${one.event ? "an event of " : ""}${one.recording}`;
    default: return one.action;
  }
}
