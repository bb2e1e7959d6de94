// The panel below the recording: the selected event, and buttons for verdicts and corrections.

import { $, duration, keyButton, make, moment } from "./text.js";

/** @typedef {import("./api.js").ReviewEvent} ReviewEvent */

/**
 * @typedef {{toggle: (verdict: string) => unknown, relabel: () => unknown, note: () => unknown, add: () => unknown,
 *   nothingElse: () => unknown, settle: () => unknown}} Handlers
 */

/**
 * @param {ReviewEvent | null} event
 * @param {{colour: string, settles: boolean, showsScore: boolean, hasQueue: boolean}} state
 * @param {Handlers} on
 */
export function showInspector(event, state, on) {
  const box = $("inspector");
  const missed = [keyButton("Add", "A", on.add), keyButton("Nothing else", "N", on.nothingElse)];
  if (!event) {
    const hint = state.hasQueue
      ? "Select an event of the queue (J), or drag over the spectrogram and add one (A). ? lists all keys."
      : "Drag over the spectrogram and add an event (A). ? lists all keys.";
    box.replaceChildren(make("p", { class: "muted" }, hint), make("div", { class: "keys" }, ...missed));
    return;
  }
  const verdictButton = (/** @type {string} */ verdict, /** @type {string} */ text, /** @type {string} */ key) => {
    return keyButton(text, key, () => on.toggle(verdict), { class: `verdict ${verdict}`, "aria-pressed": event.status === verdict });
  };
  const buttons = [
    verdictButton("right", "Right", "Y"), verdictButton("wrong", "Wrong", "X"), verdictButton("unsure", "Unsure", "U"),
    keyButton("Label", "E", on.relabel), keyButton("Note", "T", on.note), ...missed,
  ];
  if (event.status === "disputed") buttons.push(keyButton("Settle", "V", on.settle, { "aria-pressed": state.settles }));
  const fresh = make("div", {}, describe(event, state), make("div", { class: "keys" }, ...buttons));
  if (fresh.innerHTML !== box.innerHTML) box.replaceChildren(...fresh.childNodes); // or a pressed button would vanish
}

/** @param {ReviewEvent} event @param {{colour: string, settles: boolean, showsScore: boolean}} state */
function describe(event, { colour, settles, showsScore }) {
  const facts = [
    ["from", moment(event.onset, 0.001)],
    ["to", moment(event.offset, 0.001)],
    ["lasts", duration(event.offset - event.onset)],
    ["confidence", event.confidence?.toFixed(2) ?? "none"],
  ];
  if (event.given) {
    const { label, onset, offset } = event.given;
    facts.push(["was", `${label}, ${moment(onset, 0.001)} \u2013 ${moment(offset, 0.001)}`]);
  }
  facts.push(...Object.entries(event.verdicts)); // by reviewer
  return make("div", {},
    make("div", { class: "lead" }, make("span", { class: "swatch", colour }), make("h2", {}, event.label),
      make("span", { class: `badge ${event.status}` }, badgeText(event)),
      settles && make("span", { class: "badge disputed" }, "your verdict settles it")),
    make("dl", {}, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))),
    showsScore && event.score && make("p", { class: "score" }, event.score),
    event.note && make("p", { class: "note" }, event.note));
}

/** @param {ReviewEvent} event */
function badgeText(event) {
  if (event.status === "open") return "not judged";
  if (event.byStretch) return "wrong: no other events here";
  return event.source === "added" && event.status === "right" ? "added" : event.status;
}
