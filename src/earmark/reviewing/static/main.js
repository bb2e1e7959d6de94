// The page: connects the view, the lists, the player and the keyboard with the server.

import { act, get, post, saveResponse, watchServer } from "./api.js";
import { classColour } from "./colours.js";
import * as dialogs from "./dialogs.js";
import { Grid } from "./grid.js";
import { Queue, Recordings } from "./lists.js";
import { Player } from "./player.js";
import { $, clockTime, counted, duration, make, moment, say } from "./text.js";
import { showTraining } from "./training.js";
import { View } from "./view.js";

/** @typedef {import("./api.js").ReviewEvent} ReviewEvent */

/** @type {any} */
let session;
/** @type {any} */
let progress = null;
let number = 0;
/** @type {string[]} */
let classes = [];
/** @type {ReviewEvent | null} */
let current = null;
let isGrid = false;
let settles = false;
let reviewer = localStorage.getItem("reviewer") ?? "";
/** @type {View} */
let view;
/** @type {Queue} */
let queue;
/** @type {Recordings} */
let recordings;
/** @type {Player} */
let player;
/** @type {Grid} */
let grid;
let loadNumber = 0;

// Opening

async function openRecording(/** @type {number} */ index) {
  if (view.recording?.index === index) return;
  const mine = ++loadNumber;
  const recording = await get(`recordings/${index}`);
  if (mine !== loadNumber) return;
  player.stop();
  view.open(recording);
  recordings.select(index);
  showHeading();
  const all = await get(`recordings/${index}/events`);
  if (mine !== loadNumber) return;
  view.allEvents = all.events;
  view.redraw();
}

function showHeading() {
  const recording = view.recording;
  if (!recording) return;
  $("name").textContent = recording.name;
  $("name").title = recording.name;
  const facts = [recording.duration ? duration(recording.duration) : "", recording.rate ? `${(recording.rate / 1000).toLocaleString("en")} kHz` : "", recording.began ? recording.began.replace("T", " ") : ""];
  $("facts").textContent = facts.filter(Boolean).join("  \u00b7  ");
  $("checked").checked = recording.checked;
  $("note-recording").textContent = recording.note ? "Note \u2022" : "Note";
  $("note-recording").title = recording.note || "Note on this recording";
  $("problem").hidden = !recording.problem;
  $("problem").textContent = recording.problem ? `This recording cannot be read: ${recording.problem}` : "";
  $("clock").disabled = !recording.began;
}

/** Loads events and probabilities of what is visible, once the view rests. */
let viewTimer = 0;
function viewChanged() {
  clearTimeout(viewTimer);
  viewTimer = window.setTimeout(loadView, 90);
  showPosition();
}

async function loadView() {
  const recording = view.recording, { onset, offset } = view;
  if (!recording) return;
  const margin = 0.5 * (offset - onset), from = Math.max(0, onset - margin), to = Math.min(view.duration, offset + margin);
  try {
    const answer = await get(`recordings/${recording.index}/events`, { onset: from, offset: to });
    if (view.recording?.index !== recording.index) return;
    view.events = answer.events;
    view.total = answer.total;
    if (session.kind === "job") {
      const points = Math.min(1200, Math.max(50, Math.round(view.width)));
      const p = await get(`recordings/${recording.index}/probabilities`, { onset: from, offset: to, points });
      if (view.recording?.index !== recording.index) return;
      view.probabilities = { ...p, onset: from, offset: to };
    }
  } catch (error) { fail(error); }
  view.redraw();
}

async function select(/** @type {ReviewEvent | null} */ event, fits = false) {
  current = event;
  settles = false;
  view.selected = event?.id ?? null;
  view.band = null;
  queue.select(event?.id ?? null);
  showInspector();
  if (!event) { view.redraw(); return; }
  await openRecording(event.recording);
  if (current !== event) return;
  if (fits) view.fit(event); else view.reveal(event);
  history.replaceState(null, "", link(event));
  if (player.band) useBand(true);
  void explain(event);
}

async function explain(/** @type {ReviewEvent} */ event) {
  try {
    const more = await get(`events/${event.id}`);
    if (current?.id === event.id) { current = { ...current, score: more.score }; showInspector(); }
  } catch { /* it was undone meanwhile */ }
}

function link(/** @type {{name: string, onset: number, offset: number}} */ place) {
  return `#${encodeURIComponent(place.name)}@${place.onset.toFixed(2)}-${place.offset.toFixed(2)}`;
}

async function openLink() {
  const match = /^#(.+)@([0-9.]+)-([0-9.]+)$/.exec(location.hash);
  if (!match) return false;
  const onset = Number(match[2]), offset = Number(match[3]);
  let name = match[1];
  try { name = decodeURIComponent(name); } catch { /* then it is no name of ours */ }
  const found = (await get("recordings", { search: name, count: 500 })).recordings.find((/** @type {any} */ one) => one.name === name);
  if (!found) { say(`There is no recording ${name}`, true); return false; }
  await openRecording(found.index);
  const near = view.allEvents.filter((event) => event.onset < offset + 0.02 && event.offset > onset - 0.02);
  near.sort((a, b) => Math.abs(a.onset - onset) + Math.abs(a.offset - offset) - Math.abs(b.onset - onset) - Math.abs(b.offset - offset));
  if (near[0]) await select(near[0], true);
  else if (onset >= view.duration) say(`${name} ends before ${moment(onset)}`, true);
  else { view.selection = [onset, Math.min(offset, view.duration)]; view.fit({ onset, offset }); }
  return true;
}

// Acting

/** The end of the action that was sent last. */
let sent = Promise.resolve();

/** Sends an action after those before it, so that keys pressed in quick succession count in their order. */
async function send(/** @type {Record<string, unknown>} */ action) {
  const before = sent;
  let finish = () => {};
  sent = new Promise((resolve) => { finish = resolve; });
  await before;
  try {
    const answer = await act({ reviewer, since: number, ...action });
    applyChanges(answer);
    return answer;
  } catch (error) { fail(error); return null; } finally { finish(); }
}

function applyChanges(/** @type {any} */ answer) {
  number = Math.max(number, answer.number);
  if (answer.classes.length !== classes.length) { classes = answer.classes; view.classes = classes; fillClasses(); }
  for (const event of answer.events) {
    queue.update(event);
    grid.update(event);
    for (const list of [view.events, view.allEvents]) {
      const at = list.findIndex((one) => one.id === event.id);
      if (at >= 0) list[at] = event;
      else if (event.recording === view.recording?.index) list.push(event);
    }
    if (current?.id === event.id) current = event;
  }
  for (const row of answer.recordings) {
    recordings.update(row);
    const shown = view.recording;
    if (shown && shown.index === row.index) { Object.assign(shown, row); showHeading(); void refreshEvents(); }
  }
  if (answer.progress) { progress = answer.progress; showTotals(); }
  $("undo").disabled = !answer.can.undo;
  $("redo").disabled = !answer.can.redo;
  showInspector();
  view.redraw();
}

/** Added events may have disappeared. */
async function refreshEvents() {
  if (!view.recording) return;
  const index = view.recording.index, all = await get(`recordings/${index}/events`);
  if (view.recording?.index !== index) return;
  view.allEvents = all.events;
  view.events = view.events.filter((event) => all.total > all.events.length || all.events.some((/** @type {any} */ one) => one.id === event.id));
  if (current && current.recording === index && all.total === all.events.length && !all.events.some((/** @type {any} */ one) => one.id === current?.id)) void select(null);
  await loadView();
}

async function judge(/** @type {string} */ verdict) {
  if (isGrid) {
    const ids = grid.targets();
    if (ids.length && await send({ action: "verdict", events: ids, verdict })) { say(`${counted(ids.length, "event")}: ${verdict === "none" ? "withdrawn" : verdict}`); grid.selectAll(false); }
    return;
  }
  if (!current) { say("Select an event first: J"); return; }
  const event = current;
  const action = { action: "verdict", events: [event.id], verdict, ...(settles && verdict !== "none" ? { settles: true } : {}) };
  const keeps = verdict === "right" && event.given ? { label: event.label, onset: event.onset, offset: event.offset } : {};
  if (!await send({ ...action, ...keeps })) return;
  settles = false;
  showInspector();
  say(verdict === "none" ? "Verdict withdrawn" : `${event.label}: ${verdict}`);
  if (verdict !== "none") await advance();
}

async function advance() {
  const next = await queue.next(1, true);
  if (next) { await select(next); if ($("loop").getAttribute("aria-pressed") === "true" || player.isPlaying) void play(); }
  else say("That was the last event of this queue");
}

async function step(/** @type {number} */ by) {
  const next = await queue.next(by, false);
  if (next) await select(next); else say(by > 0 ? "That was the last event" : "That was the first event");
}

/** The event that a key is about: the selected one, or the snippet with the focus. */
function subject() { return isGrid ? grid.focused : current; }

async function relabel() {
  const event = subject();
  if (!event) return;
  const label = await dialogs.askLabel(classes, "Correct the label", event.label);
  if (label && await send({ action: "verdict", events: [event.id], verdict: "right", label, onset: event.onset, offset: event.offset })) say(`Now ${label}`);
}

async function moveEdges(/** @type {ReviewEvent} */ event, /** @type {number} */ onset, /** @type {number} */ offset) {
  const within = { onset: Math.max(0, Number(onset.toFixed(4))), offset: Math.min(view.duration, Number(offset.toFixed(4))) };
  await send({ action: "verdict", events: [event.id], verdict: "right", label: event.label, ...within });
}

async function addEvent() {
  if (!view.recording) return;
  const at = view.playhead ?? (view.onset + view.offset) / 2;
  const [onset, offset] = view.selection ?? [Math.max(0, at - 0.5), Math.min(view.duration, at + 0.5)];
  const label = await dialogs.askLabel(classes, `Add an event, ${moment(onset)} to ${moment(offset)}`);
  if (!label) return;
  const answer = await send({ action: "add", recording: view.recording.name, onset: Number(onset.toFixed(4)), offset: Number(offset.toFixed(4)), label });
  if (!answer) return;
  view.selection = null;
  await refreshEvents();
  const event = view.allEvents.find((one) => one.id === answer.entry.id);
  if (event) await select(event);
  say(`Added ${label}`);
}

async function nothingElse() {
  if (!view.recording) return;
  const [onset, offset] = view.selection ?? [view.onset, view.offset];
  const answer = await send({ action: "stretch", recording: view.recording.name, onset: Number(onset.toFixed(4)), offset: Number(Math.min(offset, view.duration).toFixed(4)) });
  if (!answer) return;
  view.selection = null;
  say(`Nothing else from ${moment(onset)} to ${moment(offset)}${ruledOut(answer)}`);
}

/** What an action on a stretch says about events without a verdict. */
function ruledOut(/** @type {{events: ReviewEvent[]}} */ answer) {
  const n = answer.events.filter((event) => event.byStretch && event.status === "wrong").length;
  return n ? `: ${counted(n, "event")} without a verdict now ${n === 1 ? "counts" : "count"} as wrong` : "";
}

async function setChecked(/** @type {boolean} */ checked) {
  const answer = view.recording && await send({ action: "checked", recording: view.recording.name, checked });
  if (answer) say(checked ? `Recording checked${ruledOut(answer)}` : "Recording not checked");
}

async function note(/** @type {boolean} */ onEvent) {
  const event = onEvent ? subject() : null, recording = onEvent ? event && { name: event.name, note: event.note ?? "" } : view.recording;
  if (!recording) return;
  const text = await dialogs.askText(onEvent ? "Note on the event" : "Note on the recording", recording.note ?? "", "Ctrl and Enter save");
  if (text !== null) await send({ action: "note", recording: recording.name, text, ...(event ? { event: event.id } : {}) });
}

async function undo(/** @type {"undo" | "redo"} */ which) { if (await send({ action: which })) { say(which === "undo" ? "Undone" : "Redone"); if (current && !view.event(current.id)) await select(null); } }

// Listening

async function play(/** @type {ReviewEvent | null} */ event = current) {
  if (!view.recording && !event) return;
  try {
    if (view.selection && !isGrid) await player.play(/** @type {any} */ (view.recording).index, ...view.selection);
    else if (event) { const margin = player.isLooping ? 0 : 0.25; await player.play(event.recording, Math.max(0, event.onset - margin), event.offset + margin); }
    else await playOn();
  } catch (error) { fail(error); }
}

async function playOn() {
  if (!view.recording) return;
  const from = view.playhead !== null && view.playhead < view.duration - 0.05 ? view.playhead : view.onset;
  try { await player.play(view.recording.index, from, Math.min(view.duration, from + 1800)); } catch (error) { fail(error); }
}

function playhead(/** @type {number | null} */ at, /** @type {boolean} */ isPlaying) {
  const button = $("play"), label = /** @type {HTMLElement} */ (button.querySelector("span"));
  label.textContent = isPlaying ? "Stop" : "Play";
  button.querySelector("path")?.setAttribute("d", isPlaying ? "M6 5h12v14H6z" : "M7 4v16l13-8z");
  if (isGrid || player.recording !== view.recording?.index || at === null) return;
  view.playhead = at;
  if (isPlaying && at > view.offset && at < view.duration) view.show(at, at + (view.offset - view.onset));
  showPosition();
  view.redraw();
}

function showPosition() {
  const recording = view.recording;
  if (!recording) return;
  const step = view.offset - view.onset < 2 ? 0.001 : 0.01;
  const at = view.selection ? `${moment(view.selection[0], step)} \u2013 ${moment(view.selection[1], step)}` : moment(view.playhead ?? view.onset, step);
  $("position").textContent = view.useClock && recording.began && !view.selection ? clockTime(recording.began, view.playhead ?? view.onset, 0.1) : at;
}

function useBand(/** @type {boolean} */ isOn) {
  const band = isOn && current ? view.bandOf(current) : null;
  view.band = band;
  player.setBand(band);
  $("band").setAttribute("aria-pressed", String(isOn && band !== null));
  if (isOn && !band) say("Select an event to play its band");
  view.redraw();
}

function setSpeed(/** @type {number} */ speed) {
  player.setSpeed(speed);
  player.tune();
  for (const button of document.querySelectorAll("[data-speed]")) button.setAttribute("aria-pressed", String(Number(/** @type {HTMLElement} */ (button).dataset.speed) === speed));
}

// Showing

function showTotals() {
  const total = progress.total, all = total.open + total.right + total.wrong + total.unsure + total.disputed, judged = all - total.open;
  for (const status of ["right", "wrong", "unsure", "disputed"]) /** @type {HTMLElement} */ (document.querySelector(`#progress .${status}`)).style.width = `${all ? (100 * total[status]) / all : 0}%`;
  $("progress-text").textContent = all ? `${judged.toLocaleString("en")} of ${counted(all, "event")} judged` : `${progress.checked} of ${counted(progress.recordings, "recording")} checked`;
  $("progress").setAttribute("aria-label", `${$("progress-text").textContent}: ${total.right} right, ${total.wrong} wrong, ${total.unsure} unsure, ${total.disputed} disputed`);
}

function showInspector() {
  const box = $("inspector"), event = current;
  const more = [make("button", { onclick: () => void addEvent() }, "Add", make("kbd", {}, "A")), make("button", { onclick: () => void nothingElse() }, "Nothing else", make("kbd", {}, "N"))];
  if (!event) {
    box.replaceChildren(make("p", { class: "muted" }, queue.total ? "Select an event of the queue (J), or drag over the spectrogram and add one (A). ? lists all keys." : "Drag over the spectrogram and add an event (A). ? lists all keys."), make("div", { class: "keys" }, ...more));
    return;
  }
  const facts = [["from", moment(event.onset, 0.001)], ["to", moment(event.offset, 0.001)], ["lasts", duration(event.offset - event.onset)], ["confidence", event.confidence === null ? "none" : event.confidence.toFixed(2)]];
  if (event.given) facts.push(["was", `${event.given.label}, ${moment(event.given.onset, 0.001)} \u2013 ${moment(event.given.offset, 0.001)}`]);
  for (const [who, verdict] of Object.entries(event.verdicts)) facts.push([who, verdict]);
  const badge = event.status === "open" ? "not judged" : event.byStretch ? "wrong: no other events here" : event.source === "added" && event.status === "right" ? "added" : event.status;
  const button = (/** @type {string} */ verdict, /** @type {string} */ text, /** @type {string} */ key) => make("button", { class: `verdict ${verdict}`, "aria-pressed": event.status === verdict, onclick: () => void judge(event.verdicts[reviewer] === verdict ? "none" : verdict) }, text, make("kbd", {}, key));
  const left = make("div", {},
    make("div", { class: "lead" }, make("span", { class: "swatch", colour: classColour(classes.indexOf(event.label)) }), make("h2", {}, event.label), make("span", { class: `badge ${event.status}` }, badge), settles ? make("span", { class: "badge disputed" }, "your verdict settles it") : null),
    make("dl", {}, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))),
    event.score && $("order").value === "informative" ? make("p", { class: "score" }, event.score) : null,
    event.note ? make("p", { class: "note" }, event.note) : null);
  const fresh = make("div", {}, left, make("div", { class: "keys" }, button("right", "Right", "Y"), button("wrong", "Wrong", "X"), button("unsure", "Unsure", "U"),
    make("button", { onclick: () => void relabel() }, "Label", make("kbd", {}, "E")), make("button", { onclick: () => void note(true) }, "Note", make("kbd", {}, "T")), ...more,
    event.status === "disputed" ? make("button", { "aria-pressed": settles, onclick: () => { settles = !settles; showInspector(); } }, "Settle", make("kbd", {}, "V")) : null));
  if (fresh.innerHTML !== box.innerHTML) box.replaceChildren(...fresh.childNodes); // a button that is being pressed stays
}

function fillClasses() {
  const chosen = $("label-filter").value;
  $("label-filter").replaceChildren(make("option", { value: "" }, "all"), ...classes.map((label) => make("option", { value: label }, label)));
  $("label-filter").value = classes.includes(chosen) ? chosen : "";
}

async function remake() {
  await queue.make();
  showInspector();
  if (isGrid) await grid.show(0);
}

function setMode(/** @type {boolean} */ grids) {
  isGrid = grids;
  player.stop();
  $("recording-mode").hidden = grids;
  document.body.classList.toggle("grids", grids);
  $("grid-mode").hidden = !grids;
  $("mode-grid").setAttribute("aria-pressed", String(grids));
  $("mode-recording").setAttribute("aria-pressed", String(!grids));
  if (!grids) { view.redraw(); return; }
  const at = Math.max(0, queue.events.findIndex((event) => event.id === current?.id)), first = at - (at % grid.size);
  void grid.show(first).then(() => grid.moveTo(at - first)).catch(fail);
}

/** Shows the grid, or the recording of the snippet with the focus. */
async function toggleMode() {
  const event = subject();
  setMode(!isGrid);
  if (!isGrid && event) await select(event);
}

function setTab(/** @type {string} */ name) {
  for (const tab of ["queue", "recordings"]) {
    $(`tab-${tab}`).setAttribute("aria-selected", String(tab === name));
    $(`panel-${tab}`).hidden = tab !== name;
  }
  if (name === "recordings") void recordings.load().catch(fail);
}

function setTheme(/** @type {string} */ theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  if (view) { view.theme = theme; view.lastLevels = ""; view.redraw(); }
  if (isGrid) void grid.draw();
}

async function askReviewer() {
  const name = (await dialogs.askText("Your name, stored with every verdict", reviewer, "", true))?.trim().replaceAll(/\s+/g, " ");
  if (name) { reviewer = name; localStorage.setItem("reviewer", name); $("reviewer").textContent = name; await poll(); }
}

function fail(/** @type {unknown} */ error) {
  if (error instanceof DOMException && error.name === "AbortError") return;
  say(error instanceof Error ? error.message : String(error), true);
}

async function copyLink() {
  const place = current ?? (view.recording && { name: view.recording.name, onset: view.selection?.[0] ?? view.onset, offset: view.selection?.[1] ?? view.offset });
  if (!place) return;
  history.replaceState(null, "", link(place));
  try { await navigator.clipboard.writeText(location.href); say("Link copied"); } catch { say("The link is in the address bar"); }
}

async function saveSnippets(/** @type {string} */ kind) {
  const ids = isGrid ? grid.targets() : current ? [current.id] : [];
  try { await saveResponse(await post("snippets", { events: ids, kind, margin: 0.5 }), "snippets.zip"); say("Saved"); } catch (error) { fail(error); }
}

// Keyboard

/** @type {Record<string, (e: KeyboardEvent) => unknown>} */
const ACTIONS = {
  y: () => judge("right"), x: () => judge("wrong"), u: () => judge("unsure"), Backspace: () => judge("none"), Delete: () => judge("none"),
  j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1), n: nothingElse, a: addEvent, e: relabel, t: () => note(true), m: () => setChecked(!view.recording?.checked),
  z: (e) => undo(e.shiftKey ? "redo" : "undo"), Z: () => undo("redo"), l: () => $("loop").click(), b: () => $("band").click(), s: () => setSpeed(player.speed === 1 ? 0.5 : player.speed === 0.5 ? 0.25 : 1),
  "+": () => view.zoom(0.5), "=": () => view.zoom(0.5), "-": () => view.zoom(2), ArrowLeft: (e) => view.pan(e.shiftKey ? -0.9 : -0.25), ArrowRight: (e) => view.pan(e.shiftKey ? 0.9 : 0.25),
  f: () => current && view.fit(current), w: () => view.show(0, view.duration), g: toggleMode, r: remake, p: () => progress && dialogs.showProgress(progress), h: () => dialogs.showHistory(), o: () => $("export-button").click(),
  v: () => { settles = current?.status === "disputed" && !settles; showInspector(); }, c: () => { $("clock").value = view.useClock ? "seconds" : "clock"; $("clock").dispatchEvent(new Event("change")); },
  d: async () => { if (view.recording && view.recording.index + 1 < session.recordings) { await select(null); await openRecording(view.recording.index + 1); } },
  "?": () => dialogs.showKeys(), Escape: () => { view.selection = null; player.stop(); viewChanged(); view.redraw(); },
  "[": () => nudge(-1, 0), "]": () => nudge(1, 0), "{": () => nudge(0, -1), "}": () => nudge(0, 1),
  " ": (e) => (player.isPlaying ? player.stop() : e.shiftKey ? playOn() : play()),
};

/** Keys whose action does not need the recording view. */
const IN_GRID = new Set(["y", "x", "u", "Backspace", "Delete", "e", "t", "z", "Z", "l", "s", "g", "r", "p", "h", "o", "?", "Escape"]);

/** Moves an edge by a hundredth of the view. @param {number} onset @param {number} offset */
async function nudge(onset, offset) {
  if (!current) return;
  const by = Math.max(0.005, (view.offset - view.onset) / 100), a = Math.max(0, current.onset + onset * by), b = Math.min(view.duration, current.offset + offset * by);
  if (b > a + 0.005) await moveEdges(current, a, b);
}

function pressKey(/** @type {KeyboardEvent} */ e) {
  const target = /** @type {HTMLElement} */ (e.target);
  if (dialogs.isOpen() || e.altKey || target.matches("input:not([type=checkbox]):not([type=range]), textarea, select")) return;
  if (e.ctrlKey || e.metaKey) {
    if (e.key.toLowerCase() === "z") { e.preventDefault(); void undo(e.shiftKey ? "redo" : "undo"); }
    if (e.key.toLowerCase() === "y") { e.preventDefault(); void undo("redo"); }
    return;
  }
  if (target.matches("button, input, a, [role=tab]") && (e.key === " " || e.key === "Enter")) return;
  if (target.matches("input[type=range]") && e.key.startsWith("Arrow")) return;
  if (isGrid && grid.key(e)) { e.preventDefault(); return; }
  const action = ACTIONS[e.key] ?? ACTIONS[e.key.toLowerCase()];
  if (!action) return;
  e.preventDefault();
  if (isGrid && !IN_GRID.has(e.key) && !IN_GRID.has(e.key.toLowerCase())) { say("This key needs the recording view: G"); return; }
  Promise.resolve(action(e)).catch(fail);
}

// Starting

async function poll() {
  if (document.hidden) return;
  try {
    const answer = await get("updates", { since: number, reviewer });
    applyPolled(answer);
  } catch { /* the notice says it */ }
}

function applyPolled(/** @type {any} */ answer) {
  if (answer.number !== number || $("undo").disabled !== !answer.can.undo || $("redo").disabled !== !answer.can.redo) applyChanges(answer);
}

function listen() {
  const click = (/** @type {string} */ id, /** @type {() => unknown} */ action) => $(id).addEventListener("click", () => { Promise.resolve(action()).catch(fail); });
  click("undo", () => undo("undo")); click("redo", () => undo("redo")); click("help-button", dialogs.showKeys); click("reviewer-button", askReviewer);
  click("classes-button", () => progress && dialogs.showProgress(progress));
  click("export-button", () => dialogs.showExport(session, isGrid ? grid.targets() : current ? [current.id] : [], (kind) => void saveSnippets(kind)));
  click("theme", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  click("tab-queue", () => setTab("queue")); click("tab-recordings", () => setTab("recordings")); click("refresh", remake);
  click("mode-recording", () => isGrid && toggleMode()); click("mode-grid", () => isGrid || toggleMode()); click("note-recording", () => note(false)); click("copy-link", copyLink);
  click("play", () => (player.isPlaying ? player.stop() : play())); click("fit", () => current && view.fit(current)); click("whole", () => view.show(0, view.duration)); click("zoom-in", () => view.zoom(0.5)); click("zoom-out", () => view.zoom(2));
  click("loop", () => { player.setLoop(!player.isLooping); $("loop").setAttribute("aria-pressed", String(player.isLooping)); }); click("band", () => useBand(player.band === null));
  click("select-mode", () => { view.dragSelects = !view.dragSelects; $("select-mode").setAttribute("aria-pressed", String(view.dragSelects)); });
  click("grid-snippets", () => saveSnippets("wav")); click("train-button", () => showTraining(session));
  for (const button of document.querySelectorAll("[data-speed]")) button.addEventListener("click", () => setSpeed(Number(/** @type {HTMLElement} */ (button).dataset.speed)));
  for (const button of document.querySelectorAll("[data-bulk]")) button.addEventListener("click", () => void judge(/** @type {string} */ (/** @type {HTMLElement} */ (button).dataset.bulk)));
  for (const id of ["order", "label-filter", "status-filter"]) $(id).addEventListener("change", () => void remake().catch(fail));
  $("checked").addEventListener("change", () => void setChecked($("checked").checked));
  $("scale").addEventListener("change", () => { view.scale = $("scale").value; view.lastLevels = ""; view.redraw(); });
  $("clock").addEventListener("change", () => { view.useClock = $("clock").value === "clock"; showPosition(); view.redraw(); });
  $("floor").addEventListener("input", () => { view.floor = Number($("floor").value); view.lastLevels = ""; view.redraw(); });
  $("contrast").addEventListener("input", () => { view.contrast = Number($("contrast").value); view.lastLevels = ""; view.redraw(); });
  document.addEventListener("keydown", pressKey);
  window.addEventListener("hashchange", () => void openLink().catch(fail));
  document.addEventListener("visibilitychange", () => void poll());
  setInterval(() => void poll(), 2500);
}

async function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = localStorage.getItem("theme") ?? (dark ? "dark" : "light");
  watchServer((reachable) => { $("offline").hidden = reachable; $("offline").textContent = "The server does not respond. Start earmark review again; confirmed actions are saved."; });
  session = await get("session");
  document.title = `${session.title} \u2013 earmark review`;
  $("title").textContent = session.title;
  reviewer ||= session.reviewer;
  $("reviewer").textContent = reviewer;
  classes = session.classes;
  player = new Player($("audio"), playhead);
  queue = new Queue({ select: (event) => void select(event).catch(fail), classes: () => classes });
  recordings = new Recordings({ select: (index) => void select(null).then(() => openRecording(index)).catch(fail) });
  view = new View($("view"), $("overview"), session.tiles, {
    select: (id) => { const event = id ? view.event(id) : null; if (event) void select(event).catch(fail); },
    move: (event, onset, offset) => void moveEdges(event, onset, offset),
    seek: (at) => { view.playhead = at; if (player.isPlaying) void playOn(); showPosition(); },
    changed: viewChanged,
  });
  view.theme = document.documentElement.dataset.theme;
  view.classes = classes;
  grid = new Grid({ play: (event) => void play(event), open: (event) => { setMode(false); void select(event).catch(fail); }, classes: () => classes, theme: () => view.theme, total: () => queue.total,
    events: async (first, count) => { while (queue.events.length < first + count && queue.events.length < queue.total) { const before = queue.events.length; await queue.more(); if (queue.events.length === before) break; } return queue.events.slice(first, first + count); } });
  $("order").replaceChildren(...Object.entries(session.orders).map(([name, what]) => make("option", { value: name, title: what }, name)));
  $("status-filter").replaceChildren(...[["open", "not judged", "not judged"], ["disputed", "disagreements", "with disagreements"], ["right", "right", "judged right"], ["wrong", "wrong", "judged wrong"], ["unsure", "unsure", "judged unsure"], ["judged", "judged", "judged"], ["all", "all", ""]].map(([value, text, phrase]) => make("option", { value, "data-phrase": phrase }, text)));
  $("train-button").hidden = !session.canTrain;
  fillClasses();
  listen();
  await poll();
  progress = await get("progress");
  number = progress.number;
  showTotals();
  await queue.make();
  if (!queue.total && session.kind === "recordings") setTab("recordings");
  if (!await openLink()) {
    const first = queue.events[0];
    if (first) await select(first, true); else await openRecording(0);
  }
  showInspector();
}

start().catch(fail);
