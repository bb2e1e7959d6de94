// The page: connects the view, the lists, the player and the keyboard with the server.

import { act, get, saveSnippets, setChanged, watchServer } from "./api.js";
import { classColour } from "./colours.js";
import * as dialogs from "./dialogs.js";
import { Grid } from "./grid.js";
import { showInspector } from "./inspector.js";
import { Queue, Recordings } from "./lists.js";
import { Player } from "./player.js";
import { $, clockTime, counted, duration, fillMeter, make, moment, say, showError, total } from "./text.js";
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
  const mine = ++loadNumber;
  if (view.recording?.index === index) return;
  const recording = await get(`recordings/${index}`);
  if (mine !== loadNumber) return;
  player.stop();
  view.open(recording);
  recordings.select(index);
  showHeading();
  const all = await get(`recordings/${index}/events`);
  if (view.recording?.index !== index) return;
  view.allEvents = all.events;
  view.redraw();
}

function showHeading() {
  const recording = view.recording;
  if (!recording) return;
  $("name").textContent = recording.name;
  $("name").title = recording.name;
  const facts = [
    recording.duration && duration(recording.duration),
    recording.rate && `${(recording.rate / 1000).toLocaleString("en")} kHz`,
    recording.began?.replace("T", " "),
  ];
  $("facts").textContent = facts.filter(Boolean).join("  \u00b7  ");
  $("checked").checked = recording.checked;
  $("note-recording").textContent = recording.note ? "Note \u2022" : "Note";
  $("note-recording").title = recording.note || "Note on this recording";
  $("problem").hidden = !recording.problem;
  $("problem").textContent = recording.problem ? `This recording cannot be read: ${recording.problem}` : "";
  $("clock").disabled = !recording.began;
}

let viewTimer = 0;

/** Loads events and probabilities of the visible part, once the view has not moved for a moment. */
function viewChanged() {
  clearTimeout(viewTimer);
  viewTimer = window.setTimeout(loadView, 90);
  showPosition();
}

async function loadView() {
  const recording = view.recording, { onset, offset } = view;
  if (!recording) return;
  const margin = 0.5 * (offset - onset);
  const wide = { onset: Math.max(0, onset - margin), offset: Math.min(view.duration, offset + margin) };
  try {
    const answer = await get(`recordings/${recording.index}/events`, wide);
    if (view.recording?.index !== recording.index) return;
    view.events = answer.events;
    if (session.kind === "job") {
      const points = Math.min(1200, Math.max(50, Math.round(view.width)));
      const probabilities = await get(`recordings/${recording.index}/probabilities`, { ...wide, points });
      if (view.recording?.index !== recording.index) return;
      view.probabilities = { ...probabilities, ...wide };
    }
  } catch (error) { showError(error); }
  view.redraw();
}

async function select(/** @type {ReviewEvent | null} */ event, fits = false) {
  current = event;
  settles = false;
  view.selected = event?.id ?? null;
  view.band = null;
  queue.select(event?.id ?? null);
  renderInspector();
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
    if (current?.id !== event.id) return;
    current = { ...current, score: more.score };
    renderInspector();
  } catch { /* its addition was undone in the meantime */ }
}

function link(/** @type {{name: string, onset: number, offset: number}} */ place) {
  return `#${encodeURIComponent(place.name)}@${place.onset.toFixed(2)}-${place.offset.toFixed(2)}`;
}

async function openLink() {
  const match = /^#(.+)@([0-9.]+)-([0-9.]+)$/.exec(location.hash);
  if (!match) return false;
  const onset = Number(match[2]), offset = Number(match[3]);
  let name = match[1];
  try { name = decodeURIComponent(name); } catch { /* not an encoded name */ }
  const answer = await get("recordings", { search: name, count: 500 });
  const recording = answer.recordings.find((/** @type {{name: string}} */ one) => one.name === name);
  if (!recording) {
    say(`There is no recording ${name}`, true);
    return false;
  }
  await openRecording(recording.index);
  /** @param {ReviewEvent} event */
  const distance = (event) => Math.abs(event.onset - onset) + Math.abs(event.offset - offset);
  const near = view.allEvents.filter((event) => event.onset < offset + 0.02 && event.offset > onset - 0.02);
  near.sort((a, b) => distance(a) - distance(b));
  if (near[0]) await select(near[0], true);
  else if (onset >= view.duration) say(`${name} ends before ${moment(onset)}`, true);
  else {
    view.selection = [onset, Math.min(offset, view.duration)];
    view.fit({ onset, offset });
  }
  return true;
}

// Acting

/** The end of the action that was sent last. @type {Promise<any>} */
let sent = Promise.resolve();

/** Sends an action after those before it, so that keys pressed in quick succession count in their order.
 * @param {Record<string, unknown>} action @returns {Promise<any>} the answer; null after an error */
function send(action) {
  sent = sent.then(async () => {
    try {
      const answer = await act({ reviewer, since: number, ...action });
      applyChanges(answer);
      return answer;
    } catch (error) {
      showError(error);
      return null;
    }
  });
  return sent;
}

/** Shows that the events on disk have changed, as long as they are not those of the page. */
function showNotice(/** @type {string | null} */ notice) {
  $("notice").hidden = !notice;
  if (notice && $("notice").textContent !== notice) $("notice").textContent = notice;
}

function applyChanges(/** @type {any} */ answer) {
  setChanged();
  showNotice(answer.notice);
  number = Math.max(number, answer.number);
  if (answer.classes.length !== classes.length) {
    classes = answer.classes;
    view.classes = classes;
    fillClasses();
  }
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
    if (!shown || shown.index !== row.index) continue;
    Object.assign(shown, row);
    showHeading();
    refreshEvents().catch(showError);
  }
  if (answer.progress) {
    progress = answer.progress;
    showTotals();
  }
  $("undo").disabled = !answer.can.undo;
  $("redo").disabled = !answer.can.redo;
  renderInspector();
  view.redraw();
}

/** Loads the events of the recording, without added ones whose addition was undone. */
async function refreshEvents() {
  if (!view.recording) return;
  const index = view.recording.index, answer = await get(`recordings/${index}/events`);
  if (view.recording?.index !== index) return;
  view.allEvents = answer.events;
  if (answer.total === answer.events.length) { // otherwise there are more than the server sends
    const ids = new Set(view.allEvents.map((event) => event.id));
    view.events = view.events.filter((event) => ids.has(event.id));
    if (current?.recording === index && !ids.has(current.id)) await select(null);
  }
  await loadView();
}

async function judge(/** @type {string} */ verdict) {
  if (isGrid) {
    const events = grid.targets();
    if (!events.length || !await send({ action: "verdict", events, verdict })) return;
    say(`${counted(events.length, "event")}: ${verdict === "none" ? "withdrawn" : verdict}`);
    grid.selectAll(false);
    return;
  }
  if (!current) {
    say("Select an event first: J");
    return;
  }
  const event = current;
  /** @type {Record<string, unknown>} */
  const action = { action: "verdict", events: [event.id], verdict };
  if (settles && verdict !== "none") action.settles = true;
  if (verdict === "right" && event.given) { // keeps the correction
    Object.assign(action, { label: event.label, onset: event.onset, offset: event.offset });
  }
  if (!await send(action)) return;
  settles = false;
  renderInspector();
  say(verdict === "none" ? "Verdict withdrawn" : `${event.label}: ${verdict}`);
  if (verdict !== "none" && current?.id === event.id) await advance();
}

async function advance() {
  const next = await queue.next(1, true);
  if (!next) {
    say("That was the last event of this queue");
    return;
  }
  await select(next);
  if (player.isLooping || player.isPlaying) await play();
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
  const { onset, offset } = event;
  if (label && await send({ action: "verdict", events: [event.id], verdict: "right", label, onset, offset })) {
    say(`Now ${label}`);
  }
}

/** An interval within the recording, rounded. @param {number} onset @param {number} offset */
function within(onset, offset) {
  const rounded = (/** @type {number} */ seconds) => Number(seconds.toFixed(4));
  return { onset: Math.max(0, rounded(onset)), offset: Math.min(view.duration, rounded(offset)) };
}

/** @param {ReviewEvent} event @param {number} onset @param {number} offset */
async function moveEdges(event, onset, offset) {
  const verdict = { action: "verdict", events: [event.id], verdict: "right" };
  await send({ ...verdict, label: event.label, ...within(onset, offset) });
}

async function addEvent() {
  if (!view.recording) return;
  const at = view.playhead ?? (view.onset + view.offset) / 2;
  const [onset, offset] = view.selection ?? [Math.max(0, at - 0.5), Math.min(view.duration, at + 0.5)];
  const label = await dialogs.askLabel(classes, `Add an event, ${moment(onset)} to ${moment(offset)}`);
  if (!label) return;
  const answer = await send({ action: "add", recording: view.recording.name, ...within(onset, offset), label });
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
  const answer = await send({ action: "stretch", recording: view.recording.name, ...within(onset, offset) });
  if (!answer) return;
  view.selection = null;
  say(`Nothing else from ${moment(onset)} to ${moment(offset)}${ruledOut(answer)}`);
}

/** How many events without a verdict a statement about an interval rules out, in words. */
function ruledOut(/** @type {{ruledOut: number}} */ answer) {
  const n = answer.ruledOut;
  return n ? `: ${counted(n, "event")} without a verdict now ${n === 1 ? "counts" : "count"} as wrong` : "";
}

async function setChecked(/** @type {boolean} */ checked) {
  const answer = view.recording && await send({ action: "checked", recording: view.recording.name, checked });
  if (answer) say(checked ? `Recording checked${ruledOut(answer)}` : "Recording not checked");
}

async function note(/** @type {boolean} */ onEvent) {
  const event = onEvent ? subject() : null, about = onEvent ? event : view.recording;
  if (!about) return;
  const title = onEvent ? "Note on the event" : "Note on the recording";
  const text = await dialogs.askText(title, about.note ?? "", "Ctrl and Enter save");
  if (text !== null) await send({ action: "note", recording: about.name, text, ...(event && { event: event.id }) });
}

async function undo(/** @type {"undo" | "redo"} */ which) {
  if (!await send({ action: which })) return;
  say(which === "undo" ? "Undone" : "Redone");
  if (current && !view.event(current.id)) await select(null);
}

// Listening

async function play(/** @type {ReviewEvent | null} */ event = current) {
  try {
    if (view.recording && view.selection && !isGrid) {
      await player.play(view.recording.index, ...view.selection);
    } else if (event) {
      const margin = player.isLooping ? 0 : 0.25;
      await player.play(event.recording, Math.max(0, event.onset - margin), event.offset + margin);
    } else await playOn();
  } catch (error) { showError(error); }
}

/** Plays from the playhead, or from the start of the view if it is at the end. */
async function playOn() {
  if (!view.recording) return;
  const from = view.playhead !== null && view.playhead < view.duration - 0.05 ? view.playhead : view.onset;
  try {
    await player.play(view.recording.index, from, Math.min(view.duration, from + 1800));
  } catch (error) { showError(error); }
}

/** Shows the state of the player, and follows the sound. */
function showPlayhead(/** @type {number | null} */ at, /** @type {boolean} */ isPlaying) {
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
  const at = view.playhead ?? view.onset;
  let text = moment(at, step);
  if (view.selection) text = view.selection.map((time) => moment(time, step)).join(" \u2013 ");
  else if (view.useClock && recording.began) text = clockTime(recording.began, at, 0.1);
  $("position").textContent = text;
}

function toggleLoop() {
  player.setLoop(!player.isLooping);
  $("loop").setAttribute("aria-pressed", String(player.isLooping));
}

function useBand(/** @type {boolean} */ isOn) {
  const band = isOn && current ? view.bandOf(current) : null;
  view.band = band;
  player.setBand(band);
  $("band").setAttribute("aria-pressed", String(isOn && band !== null));
  if (isOn && !band) say(current ? "The spectrogram is still loading" : "Select an event to play its band");
  view.redraw();
}

function setSpeed(/** @type {number} */ speed) {
  player.setSpeed(speed);
  for (const button of buttonsWith("speed")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.speed) === speed));
  }
}

/** Buttons with an attribute data-NAME. @param {string} name @returns {NodeListOf<HTMLElement>} */
function buttonsWith(name) { return document.querySelectorAll(`[data-${name}]`); }

// Showing

function showTotals() {
  const counts = progress.total, all = total(counts);
  const judged = `${(all - counts.open).toLocaleString("en")} of ${counted(all, "event")} judged`;
  const text = all ? judged : `${progress.checked} of ${counted(progress.recordings, "recording")} checked`;
  const { right, wrong, unsure, disputed } = counts;
  fillMeter($("progress"), counts);
  $("progress-text").textContent = text;
  $("progress").setAttribute("aria-label",
    `${text}: ${right} right, ${wrong} wrong, ${unsure} unsure, ${disputed} disputed`);
}

function renderInspector() {
  showInspector(current, {
    settles,
    colour: classColour(classes.indexOf(current?.label ?? "")),
    showsScore: $("order").value === "informative",
    hasQueue: queue.total > 0,
  }, {
    toggle: (verdict) => judge(current?.verdicts[reviewer] === verdict ? "none" : verdict),
    relabel,
    note: () => note(true),
    add: addEvent,
    nothingElse,
    settle: () => setSettles(!settles),
  });
}

function setSettles(/** @type {boolean} */ isOn) {
  settles = isOn;
  renderInspector();
}

function fillClasses() {
  const chosen = $("label-filter").value;
  const options = classes.map((label) => make("option", { value: label }, label));
  $("label-filter").replaceChildren(make("option", { value: "" }, "all"), ...options);
  $("label-filter").value = classes.includes(chosen) ? chosen : "";
}

async function refreshQueue() {
  await queue.make();
  renderInspector();
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
  if (!grids) {
    view.redraw();
    return;
  }
  const at = Math.max(0, queue.events.findIndex((event) => event.id === current?.id)), first = at - (at % grid.size);
  grid.show(first).then(() => grid.moveTo(at - first)).catch(showError);
}

/** Shows the grid, or the recording of the snippet with the focus. */
async function toggleMode() {
  const event = subject();
  setMode(!isGrid);
  if (!isGrid && event) await select(event);
}

/** Events of the queue from a position; loads them as far as necessary.
 * @param {number} first @param {number} count */
async function queueEvents(first, count) {
  let before = -1;
  while (queue.events.length < first + count && queue.events.length < queue.total && queue.events.length > before) {
    before = queue.events.length;
    await queue.more();
  }
  return queue.events.slice(first, first + count);
}

function setTab(/** @type {string} */ name) {
  for (const tab of ["queue", "recordings"]) {
    $(`tab-${tab}`).setAttribute("aria-selected", String(tab === name));
    $(`panel-${tab}`).hidden = tab !== name;
  }
  if (name === "recordings") recordings.load().catch(showError);
}

function setTheme(/** @type {string} */ theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  view.theme = theme;
  view.recolour();
  if (isGrid) void grid.draw();
}

function setClock(/** @type {boolean} */ isClock) {
  $("clock").value = isClock ? "clock" : "seconds";
  view.useClock = isClock;
  showPosition();
  view.redraw();
}

async function askReviewer() {
  const answer = await dialogs.askText("Your name, stored with every verdict", reviewer, "", true);
  const name = answer?.trim().replaceAll(/\s+/g, " ");
  if (!name) return;
  reviewer = name;
  localStorage.setItem("reviewer", name);
  $("reviewer").textContent = name;
  await poll();
}

async function copyLink() {
  if (!view.recording) return;
  const [onset, offset] = view.selection ?? [view.onset, view.offset];
  history.replaceState(null, "", link(current ?? { name: view.recording.name, onset, offset }));
  try {
    await navigator.clipboard.writeText(location.href);
    say("Link copied");
  } catch { say("The link is in the address bar"); }
}

/** Ids of the events that an export of sound is about. */
function exportedEvents() {
  if (isGrid) return grid.targets();
  return current ? [current.id] : [];
}

async function saveSound(/** @type {string} */ kind) {
  try {
    await saveSnippets(exportedEvents(), kind);
    say("Saved");
  } catch (error) { showError(error); }
}

const showExport = () => dialogs.showExport(session, exportedEvents(), saveSound);
const showProgress = () => progress && dialogs.showProgress(progress);
const fitEvent = () => current && view.fit(current);
const togglePlay = () => (player.isPlaying ? player.stop() : play());

// Keyboard

const NEXT_SPEED = new Map([[1, 0.5], [0.5, 0.25], [0.25, 1]]);

/** @type {Record<string, (e: KeyboardEvent) => unknown>} */
const ACTIONS = {
  y: () => judge("right"),
  x: () => judge("wrong"),
  u: () => judge("unsure"),
  Backspace: () => judge("none"),
  Delete: () => judge("none"),
  v: () => setSettles(current?.status === "disputed" && !settles),
  e: relabel,
  t: () => note(true),
  "[": () => nudge(-1, 0),
  "]": () => nudge(1, 0),
  "{": () => nudge(0, -1),
  "}": () => nudge(0, 1),
  a: addEvent,
  n: nothingElse,
  m: () => setChecked(!view.recording?.checked),
  z: (e) => undo(e.shiftKey ? "redo" : "undo"),
  Z: () => undo("redo"),
  " ": (e) => (e.shiftKey && !player.isPlaying ? playOn() : togglePlay()),
  l: toggleLoop,
  b: () => useBand(player.band === null),
  s: () => setSpeed(NEXT_SPEED.get(player.speed) ?? 1),
  j: () => step(1),
  ArrowDown: () => step(1),
  k: () => step(-1),
  ArrowUp: () => step(-1),
  d: nextRecording,
  ArrowLeft: (e) => view.pan(e.shiftKey ? -0.9 : -0.25),
  ArrowRight: (e) => view.pan(e.shiftKey ? 0.9 : 0.25),
  "+": () => view.zoom(0.5),
  "=": () => view.zoom(0.5),
  "-": () => view.zoom(2),
  f: fitEvent,
  w: () => view.show(0, view.duration),
  g: toggleMode,
  r: refreshQueue,
  p: showProgress,
  h: dialogs.showHistory,
  o: showExport,
  c: () => setClock(!view.useClock),
  Escape: clearSelection,
  "?": dialogs.showKeys,
};

/** Keys whose action does not need the recording view. */
const IN_GRID = new Set([..."yxuetzZlsgrpho?", "Backspace", "Delete", "Escape"]);

/** Moves an edge by a hundredth of the view. @param {number} onset @param {number} offset */
async function nudge(onset, offset) {
  if (!current) return;
  const by = Math.max(0.005, (view.offset - view.onset) / 100);
  const a = Math.max(0, current.onset + onset * by), b = Math.min(view.duration, current.offset + offset * by);
  if (b > a + 0.005) await moveEdges(current, a, b);
}

async function nextRecording() {
  if (!view.recording || view.recording.index + 1 >= session.recordings) return;
  await select(null);
  await openRecording(view.recording.index + 1);
}

function clearSelection() {
  view.selection = null;
  player.stop();
  viewChanged();
  view.redraw();
}

const TEXT_FIELDS = "input:not([type=checkbox]):not([type=range]), textarea, select";

function pressKey(/** @type {KeyboardEvent} */ e) {
  const target = /** @type {HTMLElement} */ (e.target);
  if (dialogs.isOpen() || e.altKey || target.matches(TEXT_FIELDS)) return;
  if (e.ctrlKey || e.metaKey) {
    const key = e.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    e.preventDefault();
    void undo(key === "y" || e.shiftKey ? "redo" : "undo");
    return;
  }
  if (target.matches("button, input, a, [role=tab]") && (e.key === " " || e.key === "Enter")) return;
  if (target.matches("input[type=range]") && e.key.startsWith("Arrow")) return;
  if (isGrid && grid.key(e)) {
    e.preventDefault();
    return;
  }
  const key = e.key in ACTIONS ? e.key : e.key.toLowerCase(), action = ACTIONS[key];
  if (!action) return;
  e.preventDefault();
  if (isGrid && !IN_GRID.has(key)) say("This key needs the recording view: G");
  else run(() => action(e));
}

/** Runs an action of a key or a button, and shows its error. @param {() => unknown} action */
async function run(action) {
  try { await action(); } catch (error) { showError(error); }
}

// Starting

async function poll() {
  if (document.hidden) return;
  try {
    const answer = await get("updates", { since: number, reviewer });
    const hasUndo = !$("undo").disabled, hasRedo = !$("redo").disabled;
    const isSame = answer.number === number && hasUndo === !!answer.can.undo && hasRedo === !!answer.can.redo;
    if (isSame) showNotice(answer.notice); else applyChanges(answer);
  } catch { /* `watchServer` shows that the server does not respond */ }
}

/** What buttons do, by id. @type {Record<string, () => unknown>} */
const BUTTONS = {
  undo: () => undo("undo"),
  redo: () => undo("redo"),
  "classes-button": showProgress,
  "export-button": showExport,
  "train-button": () => showTraining(session),
  "reviewer-button": askReviewer,
  theme: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  "help-button": dialogs.showKeys,
  "tab-queue": () => setTab("queue"),
  "tab-recordings": () => setTab("recordings"),
  refresh: refreshQueue,
  "mode-recording": () => isGrid && toggleMode(),
  "mode-grid": () => isGrid || toggleMode(),
  "note-recording": () => note(false),
  "copy-link": copyLink,
  play: togglePlay,
  loop: toggleLoop,
  band: () => useBand(player.band === null),
  "select-mode": () => {
    view.dragSelects = !view.dragSelects;
    $("select-mode").setAttribute("aria-pressed", String(view.dragSelects));
  },
  fit: fitEvent,
  whole: () => view.show(0, view.duration),
  "zoom-in": () => view.zoom(0.5),
  "zoom-out": () => view.zoom(2),
  "grid-snippets": () => saveSound("wav"),
};

function listen() {
  for (const [id, action] of Object.entries(BUTTONS)) $(id).addEventListener("click", () => run(action));
  for (const button of buttonsWith("speed")) {
    button.addEventListener("click", () => setSpeed(Number(button.dataset.speed)));
  }
  for (const button of buttonsWith("bulk")) {
    button.addEventListener("click", () => run(() => judge(String(button.dataset.bulk))));
  }
  for (const id of ["order", "label-filter", "status-filter"]) {
    $(id).addEventListener("change", () => run(refreshQueue));
  }
  $("checked").addEventListener("change", () => run(() => setChecked($("checked").checked)));
  $("clock").addEventListener("change", () => setClock($("clock").value === "clock"));
  $("scale").addEventListener("change", () => { view.scale = $("scale").value; view.recolour(); });
  $("floor").addEventListener("input", () => { view.floor = Number($("floor").value); view.recolour(); });
  $("contrast").addEventListener("input", () => { view.contrast = Number($("contrast").value); view.recolour(); });
  document.addEventListener("keydown", pressKey);
  window.addEventListener("hashchange", () => run(openLink));
  document.addEventListener("visibilitychange", poll);
  setInterval(poll, 2500);
}

/** Values, texts and phrases after "12 events" of the filter of statuses. */
const STATUS_FILTER = [
  ["open", "not judged", "not judged"],
  ["disputed", "disagreements", "with disagreements"],
  ["right", "right", "judged right"],
  ["wrong", "wrong", "judged wrong"],
  ["unsure", "unsure", "judged unsure"],
  ["judged", "judged", "judged"],
  ["all", "all", ""],
];

function createParts() {
  player = new Player($("audio"), showPlayhead);
  queue = new Queue({ select: (event) => run(() => select(event)), classes: () => classes });
  recordings = new Recordings({ select: (index) => run(() => select(null).then(() => openRecording(index))) });
  view = new View($("view"), $("overview"), session.tiles, {
    select: (id) => { const event = view.event(id); if (event) void run(() => select(event)); },
    move: (event, onset, offset) => void moveEdges(event, onset, offset),
    seek: (at) => {
      view.playhead = at;
      if (player.isPlaying) void playOn();
      showPosition();
    },
    changed: viewChanged,
  });
  view.theme = document.documentElement.dataset.theme ?? "dark";
  view.classes = classes;
  grid = new Grid({
    play,
    open: (event) => { setMode(false); void run(() => select(event)); },
    classes: () => classes,
    theme: () => view.theme,
    total: () => queue.total,
    events: queueEvents,
  });
}

function fillFilters() {
  for (const [name, description] of Object.entries(session.orders)) {
    $("order").append(make("option", { value: name, title: description }, name));
  }
  for (const [value, text, phrase] of STATUS_FILTER) {
    $("status-filter").append(make("option", { value, "data-phrase": phrase }, text));
  }
  fillClasses();
}

async function start() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = localStorage.getItem("theme") ?? (isDark ? "dark" : "light");
  $("offline").textContent = "The server does not respond. Start earmark review again; confirmed actions are saved.";
  watchServer((reachable) => { $("offline").hidden = reachable; });
  session = await get("session");
  document.title = `${session.title} \u2013 earmark review`;
  $("title").textContent = session.title;
  $("train-button").hidden = !session.canTrain;
  reviewer ||= session.reviewer;
  $("reviewer").textContent = reviewer;
  classes = session.classes;
  createParts();
  fillFilters();
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
  renderInspector();
}

void run(start);
