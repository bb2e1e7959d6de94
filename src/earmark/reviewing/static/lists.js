// The queue of events and the list of recordings next to the view.

import { get } from "./api.js";
import { classColour } from "./colours.js";
import { $, counted, duration, make, position, showError, total } from "./text.js";

/** @typedef {import("./api.js").ReviewEvent} ReviewEvent @typedef {import("./api.js").Recording} Recording */

const PAGE = 100;

/** Calls a function when a list is scrolled near its end. @param {HTMLElement} box @param {() => Promise<void>} load */
function onScrolledToEnd(box, load) {
  let isLoading = false;
  box.addEventListener("scroll", async () => {
    if (isLoading || box.scrollTop + box.clientHeight <= box.scrollHeight - 300) return;
    isLoading = true;
    await load().catch(showError);
    isLoading = false;
  });
}

/** The item of a list that an event is about. @param {Event} e @returns {HTMLElement | null} */
function itemOf(e) { return /** @type {HTMLElement} */ (e.target).closest(".item"); }

/** Whether an event passes the filter of statuses. @param {ReviewEvent} event */
function passes(event) {
  const wanted = $("status-filter").value;
  if (wanted === "all" || wanted === event.status) return true;
  return wanted === "judged" && event.status !== "open";
}

export class Queue {
  /** @param {{select: (event: ReviewEvent) => void, classes: () => string[]}} on */
  constructor(on) {
    this.on = on;
    this.name = "";
    this.total = 0;
    /** How many events pass the filter; judging one can change that, although it stays in the queue until it is
     * made again. */
    this.passing = 0;
    /** @type {ReviewEvent[]} */
    this.events = [];
    /** @type {string | null} */
    this.selected = null;
    const box = $("queue");
    onScrolledToEnd(box, () => this.more());
    box.addEventListener("mouseover", async (e) => {
      const item = itemOf(e);
      if (item && $("order").value === "informative") item.title ||= (await get(`events/${item.dataset.id}`)).score;
    });
    box.addEventListener("click", (e) => {
      const event = this.events.find((one) => one.id === itemOf(e)?.dataset.id);
      if (event) this.on.select(event);
    });
  }

  async make() {
    const filters = { order: $("order").value, status: $("status-filter").value, label: $("label-filter").value };
    const answer = await get("queue", { ...filters, seed: Math.floor(Math.random() * 1e9), count: PAGE });
    $("order").title = $("order").selectedOptions[0]?.title ?? "";
    this.name = answer.queue;
    this.total = this.passing = answer.total;
    this.events = answer.events;
    $("queue").replaceChildren(...this.events.map((event) => this.item(event)));
    $("queue").scrollTop = 0;
    this.summarise();
  }

  async more() {
    const { events } = this, first = events.length;
    if (first >= this.total) return;
    const page = await get(`queue/${this.name}`, { first, count: PAGE });
    if (this.events !== events || events.length !== first) return; // it was loaded by another call
    if (!page.events.length) { this.total = first; return; }
    events.push(...page.events);
    $("queue").append(...page.events.map((/** @type {ReviewEvent} */ event) => this.item(event)));
  }

  summarise() {
    const phrase = $("status-filter").selectedOptions[0]?.dataset.phrase ?? "";
    $("queue-summary").textContent = `${this.passing ? counted(this.passing, "event") : "no events"} ${phrase}`;
  }

  /** @param {ReviewEvent} event */
  item(event) {
    const attributes = {
      class: "item", role: "option", id: `event-${event.id}`, "data-id": event.id,
      "aria-selected": event.id === this.selected,
    };
    const badge = event.status !== "open" && make("span", { class: `badge ${event.status}` }, event.status);
    const place = `${position(event.onset)} \u2013 ${position(event.offset)}  ${event.name}`;
    const unknown = event.source === "added" ? "added" : "";
    return make("div", attributes,
      make("span", { class: "stripe", colour: classColour(this.on.classes().indexOf(event.label)) }),
      make("div", {}, make("span", { class: "what" }, make("b", {}, event.label), badge),
        make("span", { class: "where", title: event.name }, place)),
      make("span", { class: "end" }, event.confidence?.toFixed(2) ?? unknown));
  }

  /** @param {string | null} id */
  select(id) {
    const box = $("queue");
    if (this.selected) document.getElementById(`event-${this.selected}`)?.setAttribute("aria-selected", "false");
    this.selected = id;
    const item = id ? document.getElementById(`event-${id}`) : null;
    if (item) {
      item.setAttribute("aria-selected", "true");
      item.scrollIntoView({ block: "nearest" });
      box.setAttribute("aria-activedescendant", item.id);
    }
  }

  /** @param {ReviewEvent} event */
  update(event) {
    const at = this.events.findIndex((one) => one.id === event.id);
    if (at < 0) return;
    this.passing += Number(passes(event)) - Number(passes(this.events[at]));
    this.events[at] = event;
    this.summarise();
    document.getElementById(`event-${event.id}`)?.replaceWith(this.item(event));
  }

  /** The neighbour of the selected event, or the next one without a verdict.
   * @param {number} step @param {boolean} onlyOpen @returns {Promise<ReviewEvent | null>} */
  async next(step, onlyOpen) {
    let at = this.events.findIndex((one) => one.id === this.selected);
    if (at < 0 && step < 0) at = this.events.length;
    for (;;) {
      at += step;
      if (at < 0) return null;
      if (at >= this.events.length) {
        const before = this.events.length;
        await this.more();
        if (this.events.length === before) return null;
      }
      if (!onlyOpen || ["open", "disputed"].includes(this.events[at].status)) return this.events[at];
    }
  }
}

export class Recordings {
  /** @param {{select: (index: number) => void}} on */
  constructor(on) {
    this.on = on;
    /** @type {Recording[]} */
    this.rows = [];
    this.total = 0;
    this.selected = -1;
    const box = $("recordings");
    onScrolledToEnd(box, () => this.more());
    box.addEventListener("click", (e) => {
      const item = itemOf(e);
      if (item) this.on.select(Number(item.dataset.index));
    });
    box.addEventListener("keydown", (e) => {
      if (e.key !== "ArrowDown" && e.key !== "ArrowUp") return;
      e.preventDefault();
      e.stopPropagation();
      const at = this.rows.findIndex((row) => row.index === this.selected) + (e.key === "ArrowDown" ? 1 : -1);
      if (this.rows[at]) this.on.select(this.rows[at].index);
    });
    $("search").addEventListener("input", () => void this.load().catch(showError));
  }

  async load() {
    const answer = await get("recordings", { search: $("search").value, count: 200 });
    this.rows = answer.recordings;
    this.total = answer.total;
    $("recordings").replaceChildren(...this.rows.map((row) => this.item(row)));
    $("recordings-summary").textContent = counted(this.total, "recording");
  }

  async more() {
    const { rows } = this;
    if (rows.length >= this.total) return;
    const { recordings } = await get("recordings", { search: $("search").value, first: rows.length, count: 200 });
    if (this.rows !== rows) return; // other recordings were searched for
    rows.push(...recordings);
    $("recordings").append(...recordings.map((/** @type {Recording} */ row) => this.item(row)));
  }

  /** @param {Recording} row */
  item(row) {
    const attributes = {
      class: "item", role: "option", id: `recording-${row.index}`, "data-index": row.index,
      "aria-selected": row.index === this.selected,
    };
    const all = total(row.counts);
    const events = all ? `${row.counts.open ?? 0} of ${all} not judged` : "no events";
    const facts = [row.duration && duration(row.duration), events, row.note].filter(Boolean).join(", ");
    const badge = row.checked && make("span", { class: "badge right" }, "checked");
    return make("div", attributes,
      make("span", { class: "stripe" }),
      make("div", {}, make("span", { class: "what" }, make("b", { title: row.name }, row.name), badge),
        make("span", { class: "where" }, facts)),
      make("span", { class: "end" }));
  }

  /** @param {number} index */
  select(index) {
    document.getElementById(`recording-${this.selected}`)?.setAttribute("aria-selected", "false");
    this.selected = index;
    const item = document.getElementById(`recording-${index}`);
    item?.setAttribute("aria-selected", "true");
    item?.scrollIntoView({ block: "nearest" });
  }

  /** @param {Recording} row */
  update(row) {
    const at = this.rows.findIndex((one) => one.index === row.index);
    if (at < 0) return;
    this.rows[at] = { ...this.rows[at], ...row };
    document.getElementById(`recording-${row.index}`)?.replaceWith(this.item(this.rows[at]));
  }
}
