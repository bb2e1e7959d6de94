// A grid of snippets, for verdicts on many short events at once.

import { getBytes } from "./api.js";
import { classColour, levelColours } from "./colours.js";
import { $, counted, make, position, showError } from "./text.js";
import { paint, usualLevels } from "./tiles.js";

/** @typedef {import("./api.js").ReviewEvent} ReviewEvent */

const PAGE = 48, COLUMNS = 128, ROWS = 64;

export class Grid {
  /**
   * @param {{play: (event: ReviewEvent) => void, open: (event: ReviewEvent) => void, classes: () => string[],
   *   theme: () => string, events: (first: number, count: number) => Promise<ReviewEvent[]>, total: () => number}} on
   */
  constructor(on) {
    this.on = on;
    this.first = 0;
    /** @type {ReviewEvent[]} */
    this.events = [];
    /** @type {Set<string>} */
    this.selected = new Set();
    this.focus = 0;
    const box = $("grid");
    box.addEventListener("click", (e) => {
      const at = this.indexOf(e.target);
      if (at < 0) return;
      this.moveTo(at);
      if (e.shiftKey || e.ctrlKey || e.metaKey || e.detail === 1) this.toggle(at);
      this.on.play(this.events[at]);
    });
    box.addEventListener("dblclick", (e) => {
      const at = this.indexOf(e.target);
      if (at >= 0) this.on.open(this.events[at]);
    });
    box.addEventListener("focusin", (e) => {
      const at = this.indexOf(e.target);
      if (at >= 0) this.focus = at;
    });
    $("grid-all").addEventListener("click", () => this.selectAll(true));
    $("grid-none").addEventListener("click", () => this.selectAll(false));
    $("grid-more").addEventListener("click", () => void this.turn(1).catch(showError));
    $("grid-back").addEventListener("click", () => void this.turn(-1).catch(showError));
  }

  /** @param {any} target */
  indexOf(target) { return this.events.findIndex((event) => event.id === target.closest(".card")?.dataset.id); }

  /** @param {number} first */
  async show(first) {
    this.first = first;
    const events = await this.on.events(first, PAGE);
    if (this.first !== first) return; // another page was requested
    this.events = events;
    this.selected.clear();
    this.focus = 0;
    $("grid").replaceChildren(...this.events.map((event, k) => this.card(event, k)));
    if (!this.events.length) {
      const hint = "No events in this queue. Choose another class or status on the left.";
      $("grid").append(make("p", { class: "empty" }, hint));
    }
    $("grid-back").disabled = !first;
    $("grid-more").disabled = first + PAGE >= this.on.total();
    $("grid").scrollTop = 0;
    this.summarise();
    void this.draw(); // pictures arrive one by one
  }

  /** Shows the next page, or the previous one. @param {number} by */
  async turn(by) {
    const first = this.first + by * PAGE;
    if (first < 0 || first >= this.on.total()) return;
    await this.show(first);
    this.moveTo(0);
  }

  /** @param {ReviewEvent} event @param {number} k */
  card(event, k) {
    const attributes = {
      class: `card ${event.status}`, role: "gridcell", tabindex: k === this.focus ? 0 : -1, "data-id": event.id,
      "aria-selected": this.selected.has(event.id),
      "aria-label": `${event.label}, ${event.status}, ${event.name} at ${position(event.onset)}`,
    };
    const state = event.status === "open"
      ? make("span", { class: "muted" }, event.confidence?.toFixed(2))
      : make("span", { class: `badge ${event.status}` }, event.status);
    const place = make("span", { class: "where", title: event.name }, `${position(event.onset)}  ${event.name}`);
    return make("div", attributes,
      make("canvas", { width: COLUMNS, height: ROWS }),
      make("div", { class: "about" }, make("b", {}, event.label), state, place));
  }

  /** The element of an event. @param {string} id @returns {HTMLElement | null} */
  cardOf(id) { return $("grid").querySelector(`[data-id="${CSS.escape(id)}"]`); }

  /** Fetches and paints the pictures of this page, four at a time. */
  async draw() {
    const events = [...this.events];
    let next = 0;
    const work = async () => {
      while (next < events.length && events[0] === this.events[0]) await this.drawPicture(events[next++]);
    };
    await Promise.all([work(), work(), work(), work()]);
  }

  /** @param {ReviewEvent} event */
  async drawPicture(event) {
    let data;
    try {
      data = await getBytes(`events/${event.id}/thumbnail`);
    } catch {
      return; // the recording cannot be read
    }
    const canvas = this.cardOf(event.id)?.querySelector("canvas");
    if (!canvas) return;
    const [low, high] = usualLevels([data]);
    paint(canvas, data, COLUMNS, ROWS, levelColours(this.on.theme(), low, high));
    this.drawEdges(canvas, event);
  }

  /** Marks onset and offset of the event. @param {HTMLCanvasElement} canvas @param {ReviewEvent} event */
  drawEdges(canvas, event) {
    const context = canvas.getContext("2d");
    if (!context) return;
    const margin = Math.max(0.25, 0.25 * (event.offset - event.onset)); // as the server adds it
    const begin = Math.max(0, event.onset - margin), length = event.offset + margin - begin;
    context.fillStyle = classColour(this.on.classes().indexOf(event.label));
    for (const time of [event.onset, event.offset]) {
      context.fillRect(Math.round(((time - begin) / length) * COLUMNS), 0, 1, ROWS);
    }
  }

  /** @param {ReviewEvent} event */
  update(event) {
    const at = this.events.findIndex((one) => one.id === event.id);
    if (at < 0) return;
    this.events[at] = event;
    const old = this.cardOf(event.id);
    if (!old) return;
    const fresh = this.card(event, at), hadFocus = document.activeElement === old;
    const canvas = old.querySelector("canvas");
    if (canvas) fresh.querySelector("canvas")?.replaceWith(canvas);
    old.replaceWith(fresh);
    if (hadFocus) fresh.focus();
  }

  summarise() {
    const last = Math.min(this.first + this.events.length, this.on.total());
    const shown = `${this.first + 1}\u2013${last} of ${counted(this.on.total(), "event")}`;
    $("grid-summary").textContent = this.events.length ? `${shown}, ${this.selected.size} selected` : "no events";
  }

  /** @param {number} at */
  toggle(at) {
    const id = this.events[at].id;
    if (!this.selected.delete(id)) this.selected.add(id);
    this.cardOf(id)?.setAttribute("aria-selected", String(this.selected.has(id)));
    this.summarise();
  }

  /** @param {boolean} isSelected */
  selectAll(isSelected) {
    this.selected = new Set(isSelected ? this.events.map((event) => event.id) : []);
    for (const card of this.cards) card.setAttribute("aria-selected", String(isSelected));
    this.summarise();
  }

  get cards() { return /** @type {HTMLCollectionOf<HTMLElement>} */ ($("grid").getElementsByClassName("card")); }
  get size() { return PAGE; }
  get focused() { return this.events[this.focus] ?? null; }

  /** @param {number} at */
  moveTo(at) {
    const cards = this.cards;
    if (!cards[at]) return;
    cards[this.focus]?.setAttribute("tabindex", "-1");
    this.focus = at;
    cards[at].setAttribute("tabindex", "0");
    cards[at].focus();
  }

  /** Ids that a verdict is about. */
  targets() {
    if (this.selected.size) return [...this.selected];
    return this.events[this.focus] ? [this.events[this.focus].id] : [];
  }

  /** @param {KeyboardEvent} e @returns {boolean} whether the key was used */
  key(e) {
    const cards = this.cards;
    if (!cards.length) return false;
    const perRow = Math.max(1, Array.from(cards).findIndex((card) => card.offsetTop > cards[0].offsetTop));
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -perRow, ArrowDown: perRow, j: 1, k: -1 }[e.key];
    if (step !== undefined) this.moveTo(Math.min(cards.length - 1, Math.max(0, this.focus + step)));
    else if (e.key === "PageDown" || e.key === "PageUp") this.turn(e.key === "PageDown" ? 1 : -1).catch(showError);
    else if (e.key === "Enter") this.toggle(this.focus);
    else if (e.key === " ") this.on.play(this.events[this.focus]);
    else return false;
    return true;
  }
}
