// The queue of events and the list of recordings next to the view.

import { get } from "./api.js";
import { classColour } from "./colours.js";
import { $, counted, duration, make, position } from "./text.js";

/** @typedef {import("./api.js").ReviewEvent} ReviewEvent @typedef {import("./api.js").Recording} Recording */

const PAGE = 100;

export class Queue {
  /** @param {{select: (event: ReviewEvent) => void, classes: () => string[]}} on */
  constructor(on) {
    this.on = on;
    this.name = "";
    this.total = 0;
    /** @type {ReviewEvent[]} */
    this.events = [];
    /** @type {string | null} */
    this.selected = null;
    this.isLoading = false;
    const box = $("queue");
    box.addEventListener("scroll", () => { if (box.scrollTop + box.clientHeight > box.scrollHeight - 300) void this.more(); });
    box.addEventListener("mouseover", async (/** @type {MouseEvent} */ e) => {
      const item = /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (e.target).closest(".item"));
      if (item && $("order").value === "informative") item.title ||= (await get(`events/${item.dataset.id}`)).score;
    });
    box.addEventListener("click", (/** @type {MouseEvent} */ e) => {
      const item = /** @type {HTMLElement} */ (e.target).closest(".item");
      const event = this.events.find((one) => one.id === /** @type {HTMLElement | null} */ (item)?.dataset.id);
      if (event) this.on.select(event);
    });
  }

  async make() {
    const values = { order: $("order").value, status: $("status-filter").value, label: $("label-filter").value, seed: Math.floor(Math.random() * 1e9), count: PAGE };
    const answer = await get("queue", values);
    $("order").title = $("order").selectedOptions[0]?.title ?? "";
    this.name = answer.queue;
    this.total = answer.total;
    this.events = answer.events;
    $("queue").replaceChildren(...this.events.map((event) => this.item(event)));
    $("queue").scrollTop = 0;
    this.summarise();
  }

  async more() {
    if (this.isLoading || this.events.length >= this.total) return;
    this.isLoading = true;
    const { events } = await get(`queue/${this.name}`, { first: this.events.length, count: PAGE });
    this.isLoading = false;
    if (!events.length) { this.total = this.events.length; return; }
    this.events.push(...events);
    $("queue").append(...events.map((/** @type {ReviewEvent} */ event) => this.item(event)));
  }

  summarise() {
    const phrase = $("status-filter").selectedOptions[0]?.dataset.phrase ?? "";
    $("queue-summary").textContent = `${this.total ? counted(this.total, "event") : "no events"} ${phrase}`;
  }

  /** @param {ReviewEvent} event */
  item(event) {
    const confidence = event.confidence === null ? event.source === "added" ? "added" : "" : event.confidence.toFixed(2);
    return make("div", { class: "item", role: "option", id: `event-${event.id}`, "data-id": event.id, "aria-selected": event.id === this.selected },
      make("span", { class: "stripe", colour: classColour(this.on.classes().indexOf(event.label)) }),
      make("div", {}, make("span", { class: "what" }, make("b", {}, event.label), event.status === "open" ? null : make("span", { class: `badge ${event.status}` }, event.status)),
        make("span", { class: "where", title: event.name }, `${position(event.onset)} \u2013 ${position(event.offset)}  ${event.name}`)),
      make("span", { class: "end" }, confidence));
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
    this.events[at] = event;
    document.getElementById(`event-${event.id}`)?.replaceWith(this.item(event));
  }

  /** The next event to judge, or the neighbour. @param {number} step @param {boolean} onlyOpen @returns {Promise<ReviewEvent | null>} */
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
    box.addEventListener("scroll", () => { if (box.scrollTop + box.clientHeight > box.scrollHeight - 300) void this.more(); });
    box.addEventListener("click", (/** @type {MouseEvent} */ e) => {
      const item = /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (e.target).closest(".item"));
      if (item) this.on.select(Number(item.dataset.index));
    });
    box.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => {
      if (e.key !== "ArrowDown" && e.key !== "ArrowUp") return;
      e.preventDefault();
      e.stopPropagation();
      const at = this.rows.findIndex((row) => row.index === this.selected) + (e.key === "ArrowDown" ? 1 : -1);
      if (this.rows[at]) this.on.select(this.rows[at].index);
    });
    $("search").addEventListener("input", () => void this.load());
  }

  async load() {
    const answer = await get("recordings", { search: $("search").value, count: 200 });
    this.rows = answer.recordings;
    this.total = answer.total;
    $("recordings").replaceChildren(...this.rows.map((row) => this.item(row)));
    $("recordings-summary").textContent = counted(this.total, "recording");
  }

  async more() {
    if (this.rows.length >= this.total) return;
    const { recordings } = await get("recordings", { search: $("search").value, first: this.rows.length, count: 200 });
    this.rows.push(...recordings);
    $("recordings").append(...recordings.map((/** @type {Recording} */ row) => this.item(row)));
  }

  /** @param {Recording} row */
  item(row) {
    const open = row.counts.open ?? 0, total = Object.values(row.counts).reduce((sum, n) => sum + n, 0);
    return make("div", { class: "item", role: "option", id: `recording-${row.index}`, "data-index": row.index, "aria-selected": row.index === this.selected },
      make("span", { class: "stripe" }),
      make("div", {}, make("span", { class: "what" }, make("b", { title: row.name }, row.name), row.checked ? make("span", { class: "badge right" }, "checked") : null),
        make("span", { class: "where" }, [row.duration ? duration(row.duration) : "", total ? `${open} of ${total} open` : "no events", row.note].filter(Boolean).join(", "))),
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
