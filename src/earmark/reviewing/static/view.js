// The recording view: time axis, spectrogram, probabilities and events, on one canvas.

import { classColour, levelColours } from "./colours.js";
import { clockTime, frequency, moment } from "./text.js";
import { Tiles, usualLevels } from "./tiles.js";

const GUTTER = 110, AXIS = 22, LANE = 26, EDGE = 7, TOUCH = 18; // pixels
const SHORTEST = 0.02; // seconds of a view
const FONT = "11px system-ui";
const STEPS = [ // seconds
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30,
  60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600,
];
const HERTZ = [
  50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 8000, 10000, 15000, 20000, 30000, 40000,
  60000, 80000, 100000, 150000,
];

/** @param {number} hz */
const mel = (hz) => 2595 * Math.log10(1 + hz / 700);

/** @typedef {import("./api.js").ReviewEvent} ReviewEvent @typedef {import("./api.js").Recording} Recording */

export class View {
  /**
   * @param {HTMLCanvasElement} canvas @param {HTMLCanvasElement} overview
   * @param {{columns: number, rows: number, levels: number}} shape
   * @param {{select: (id: string | null) => void, move: (event: ReviewEvent, onset: number, offset: number) => void,
   *   seek: (at: number) => void, changed: () => void}} on
   */
  constructor(canvas, overview, shape, on) {
    this.canvas = canvas;
    this.overview = overview;
    this.on = on;
    this.tiles = new Tiles(shape, () => this.redraw());
    /** @type {Recording | null} */
    this.recording = null;
    this.duration = 1;
    this.onset = 0;
    this.offset = 1;
    /** @type {ReviewEvent[]} */
    this.events = [];
    /** @type {ReviewEvent[]} */
    this.allEvents = [];
    /** @type {{classes: string[], values: number[][], onset: number, offset: number}} */
    this.probabilities = { classes: [], values: [], onset: 0, offset: 1 };
    /** @type {string[]} */
    this.classes = [];
    /** @type {string | null} */
    this.selected = null;
    /** @type {[number, number] | null} */
    this.selection = null;
    /** @type {number | null} */
    this.playhead = null;
    /** @type {[number, number] | null} */
    this.band = null;
    this.scale = "mel";
    this.useClock = false;
    this.theme = "dark";
    this.floor = 0;
    this.contrast = 0;
    this.dragSelects = false;
    this.isQueued = false;
    /** @type {{kind: string, at: number, event?: ReviewEvent, onset: number, offset: number, moved: boolean} | null} */
    this.drag = null;
    /** @type {Map<number, number>} */
    this.pointers = new Map();
    this.lastLevels = "";
    this.listen();
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  // Where things are

  get width() { return this.canvas.clientWidth - GUTTER; }
  get lanes() {
    const present = new Set(this.events.map((event) => event.label));
    for (let c = 0; c < this.probabilities.classes.length; c++) {
      if (this.probabilities.values[c].some((value) => value >= 25)) present.add(this.probabilities.classes[c]);
    }
    const room = Math.max(2, Math.floor((0.42 * this.canvas.clientHeight - AXIS) / LANE));
    const chosen = this.classes.filter((label) => present.has(label));
    const current = this.event(this.selected)?.label;
    if (current && chosen.indexOf(current) >= room) { // is always shown
      chosen.splice(chosen.indexOf(current), 1);
      chosen.unshift(current);
    }
    return { shown: chosen.slice(0, room), more: Math.max(0, chosen.length - room) };
  }
  /** @param {number} time */
  x(time) { return GUTTER + ((time - this.onset) / (this.offset - this.onset)) * this.width; }
  /** @param {number} x */
  time(x) { return this.onset + ((x - GUTTER) / this.width) * (this.offset - this.onset); }
  /** @param {string | null} id */
  event(id) {
    const isIt = (/** @type {ReviewEvent} */ event) => event.id === id;
    return this.events.find(isIt) ?? this.allEvents.find(isIt) ?? null;
  }
  get top() { return (this.recording?.rate ?? 16000) / 2; }
  /** Height of a frequency, 0 at the bottom, 1 at the top. @param {number} hz */
  height(hz) { return this.scale === "mel" ? mel(hz) / mel(this.top) : hz / this.top; }
  /** The frequency at a height. @param {number} height */
  hertz(height) {
    return this.scale === "mel" ? 700 * (10 ** ((height * mel(this.top)) / 2595) - 1) : height * this.top;
  }
  /** @param {string} label */
  colourOf(label) { return classColour(this.classes.indexOf(label)); }

  // Moving

  /** @param {Recording} recording */
  open(recording) {
    this.recording = recording;
    this.duration = Math.max(recording.duration ?? 1, SHORTEST);
    this.selection = null;
    this.events = [];
    this.allEvents = [];
    this.probabilities = { classes: [], values: [], onset: 0, offset: 1 };
    this.playhead = null;
    this.band = null;
    this.lastLevels = "";
    this.show(0, Math.min(this.duration, 60));
  }

  /** @param {number} onset @param {number} offset */
  show(onset, offset) {
    const length = Math.min(this.duration, Math.max(SHORTEST, offset - onset));
    this.onset = Math.min(Math.max(0, onset), this.duration - length);
    this.offset = this.onset + length;
    this.canvas.dataset.onset = this.onset.toFixed(4);
    this.canvas.dataset.offset = this.offset.toFixed(4);
    this.on.changed();
    this.redraw();
  }

  /** @param {number} factor above 1 shows more @param {number} [around] */
  zoom(factor, around) {
    const event = this.event(this.selected);
    const isVisible = event && event.onset < this.offset && event.offset > this.onset;
    const { onset, offset } = isVisible ? event : this;
    const at = around ?? (onset + offset) / 2;
    this.show(at - (at - this.onset) * factor, at + (this.offset - at) * factor);
  }

  /** Moves the view to begin at a time, as far as the recording allows. @param {number} onset */
  moveTo(onset) {
    const length = this.offset - this.onset;
    const begin = Math.min(Math.max(0, onset), this.duration - length);
    this.show(begin, begin + length);
  }

  /** @param {number} share of the width */
  pan(share) { this.moveTo(this.onset + share * (this.offset - this.onset)); }

  /** @param {ReviewEvent} event */
  reveal(event) {
    const isLarge = event.offset - event.onset > 0.02 * (this.offset - this.onset);
    const isVisible = event.onset >= this.onset && event.offset <= this.offset;
    if (!isVisible || !isLarge) this.fit(event);
  }

  /** @param {{onset: number, offset: number}} event */
  fit(event) {
    const margin = Math.max(1, 1.2 * (event.offset - event.onset));
    this.show(event.onset - margin, event.offset + margin);
  }

  // Pointer

  listen() {
    const { canvas, overview } = this;
    canvas.addEventListener("pointerdown", (e) => this.press(e));
    canvas.addEventListener("pointermove", (e) => this.movePointer(e));
    canvas.addEventListener("pointerup", (e) => this.release(e));
    canvas.addEventListener("pointercancel", (e) => this.release(e));
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan(e.deltaX / this.width);
      else if (e.shiftKey) this.pan(e.deltaY / this.width);
      else this.zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))), this.time(e.offsetX));
    }, { passive: false });
    canvas.addEventListener("dblclick", (e) => {
      const event = this.hit(e.offsetX, e.offsetY);
      if (event) this.fit(event);
    });
    const go = (/** @type {PointerEvent} */ e) => {
      const at = ((e.offsetX - GUTTER) / (overview.clientWidth - GUTTER)) * this.duration;
      this.moveTo(at - (this.offset - this.onset) / 2);
    };
    overview.addEventListener("pointerdown", (e) => { overview.setPointerCapture(e.pointerId); go(e); });
    overview.addEventListener("pointermove", (e) => { if (e.buttons) go(e); });
  }

  /** The event at a point of the lanes, or whose edges are there. @param {number} x @param {number} y */
  hit(x, y) {
    const lanes = this.lanes.shown, first = this.canvas.clientHeight - lanes.length * LANE;
    const lane = lanes[Math.floor((y - first) / LANE)];
    if (y < first || !lane) return null;
    const inLane = this.events.filter((event) => event.label === lane);
    const near = inLane.filter((event) => this.x(event.onset) - 3 <= x && x <= this.x(event.offset) + 3);
    return near.sort((a, b) => (a.offset - a.onset) - (b.offset - b.onset))[0] ?? null;
  }

  /** Which edge of the selected event is at a point. @param {number} x @param {number} [reach] */
  edge(x, reach = EDGE) {
    const event = this.event(this.selected);
    if (!event || event.recording !== this.recording?.index) return null;
    const onset = Math.abs(this.x(event.onset) - x), offset = Math.abs(this.x(event.offset) - x);
    if (Math.min(onset, offset) > reach) return null;
    return onset < offset ? "onset" : "offset";
  }

  /** @param {PointerEvent} e */
  press(e) {
    if (!this.recording || e.button > 0) return;
    this.canvas.focus({ preventScroll: true });
    try { this.canvas.setPointerCapture(e.pointerId); } catch { /* the pointer is gone */ }
    this.pointers.set(e.pointerId, e.offsetX);
    const isTouch = e.pointerType === "touch";
    const edge = this.edge(e.offsetX, isTouch ? TOUCH : EDGE), event = this.event(this.selected);
    const isOnAxes = e.offsetX < GUTTER || e.offsetY < AXIS;
    const base = { at: this.time(e.offsetX), onset: this.onset, offset: this.offset, moved: false };
    if (this.pointers.size === 2) this.drag = { kind: "pinch", ...base };
    else if (edge && event) this.drag = { kind: edge, event, ...base, onset: event.onset, offset: event.offset };
    else this.drag = { kind: isOnAxes || (isTouch && !this.dragSelects) ? "pan" : "select", ...base };
  }

  /** The cursor at a point without a button pressed. @param {number} x @param {number} y */
  cursor(x, y) {
    if (this.edge(x)) return "ew-resize";
    if (this.hit(x, y)) return "pointer";
    return y < AXIS ? "grab" : "crosshair";
  }

  /** @param {PointerEvent} e */
  movePointer(e) {
    if (!this.drag) {
      this.canvas.style.cursor = this.cursor(e.offsetX, e.offsetY);
      return;
    }
    const before = [...this.pointers.values()];
    this.pointers.set(e.pointerId, e.offsetX);
    const drag = this.drag, at = Math.min(this.duration, Math.max(0, this.time(e.offsetX)));
    if (Math.abs(this.x(drag.at) - e.offsetX) > 3) drag.moved = true;
    if (drag.kind === "pinch" && this.pointers.size === 2) {
      const [a, b] = [...this.pointers.values()];
      const factor = Math.abs(before[0] - before[1]) / Math.max(8, Math.abs(a - b));
      this.zoom(factor, this.time((a + b) / 2));
    } else if (drag.kind === "pan" && drag.moved) {
      this.moveTo(this.onset + drag.at - this.time(e.offsetX));
    } else if (drag.kind === "select" && drag.moved) {
      this.selection = [Math.min(drag.at, at), Math.max(drag.at, at)];
      this.on.changed();
      this.redraw();
    } else if (drag.event) {
      if (drag.kind === "onset") drag.onset = Math.min(at, drag.offset - 0.005);
      else drag.offset = Math.max(at, drag.onset + 0.005);
      this.redraw();
    }
  }

  /** @param {PointerEvent} e */
  release(e) {
    this.pointers.delete(e.pointerId);
    const drag = this.drag;
    this.drag = null;
    if (!drag || e.type === "pointercancel") { this.redraw(); return; }
    if (drag.event && drag.moved) this.on.move(drag.event, drag.onset, drag.offset);
    else if (!drag.moved && drag.kind !== "pinch") {
      const event = this.hit(e.offsetX, e.offsetY);
      this.selection = null;
      if (event) this.on.select(event.id);
      else if (e.offsetX >= GUTTER) this.on.seek(Math.min(this.duration, Math.max(0, drag.at)));
    }
    this.redraw();
  }

  // Drawing

  /** Draws again with the present theme, scale and levels. */
  recolour() {
    this.lastLevels = "";
    this.redraw();
  }

  redraw() {
    if (this.isQueued) return;
    this.isQueued = true;
    requestAnimationFrame(() => { this.isQueued = false; this.draw(); });
  }

  draw() {
    const context = prepare(this.canvas);
    if (!context) return;
    const style = getComputedStyle(document.documentElement);
    const muted = style.getPropertyValue("--muted"), line = style.getPropertyValue("--line");
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    context.fillStyle = style.getPropertyValue("--canvas");
    context.fillRect(0, 0, width, height);
    if (!this.recording) return;
    const { shown, more } = this.lanes;
    const bottom = height - shown.length * LANE - (more ? 16 : 0);
    context.save();
    context.beginPath();
    context.rect(GUTTER, AXIS, width - GUTTER, bottom - AXIS);
    context.clip();
    if (!this.recording.problem) this.drawTiles(context, AXIS, bottom - AXIS);
    this.drawSpans(context, AXIS, bottom, style);
    context.restore();
    context.fillStyle = style.getPropertyValue("--surface");
    context.fillRect(0, bottom, width, height - bottom);
    context.fillRect(0, 0, width, AXIS);
    context.fillRect(0, 0, GUTTER, bottom);
    this.drawTimes(context, muted, line, bottom);
    this.drawHertz(context, muted, line, AXIS, bottom - AXIS);
    context.save();
    context.beginPath();
    context.rect(0, bottom, width, height - bottom);
    context.clip();
    this.drawLanes(context, shown, height - shown.length * LANE, style);
    if (more) {
      context.fillStyle = muted;
      context.font = FONT;
      context.fillText(`${more} more ${more === 1 ? "class" : "classes"} not shown`, 8, bottom + 12);
    }
    context.restore();
    if (this.playhead !== null && this.playhead >= this.onset && this.playhead <= this.offset) {
      context.fillStyle = "#ffcc33";
      context.fillRect(Math.round(this.x(this.playhead)) - 1, AXIS - 6, 2, height);
    }
    this.drawOverview(style);
  }

  /** @param {CanvasRenderingContext2D} context @param {number} top @param {number} height */
  drawTiles(context, top, height) {
    const tiles = this.tiles, perPixel = (this.offset - this.onset) / (this.width * devicePixelRatio);
    const level = tiles.level(perPixel), recording = this.recording?.index ?? 0;
    const span = tiles.seconds(level) * tiles.shape.columns;
    const first = Math.max(0, Math.floor(this.onset / span));
    const last = Math.floor(Math.min(this.offset, this.duration - 1e-9) / span);
    const middle = (first + last) / 2;
    const visible = [];
    for (let k = first; k <= last; k++) visible.push({ k, key: `${recording}/${this.scale}/${level}/${k}` });
    this.updateColours(visible.map(({ key }) => key));
    context.imageSmoothingEnabled = true;
    for (const { k, key } of visible) {
      const x = this.x(k * span), place = { x, width: this.x((k + 1) * span) - x + 0.5, top, height };
      const image = tiles.image(key);
      if (image) context.drawImage(image, place.x, place.top, place.width, place.height);
      else this.drawCoarser(context, level, k, place);
    }
    visible.sort((a, b) => Math.abs(a.k - middle) - Math.abs(b.k - middle));
    tiles.want(visible.map(({ key }) => key));
  }

  /** Draws part of a coarser tile until the tile itself arrives.
   * @param {CanvasRenderingContext2D} context @param {number} level @param {number} k
   * @param {{x: number, width: number, top: number, height: number}} place */
  drawCoarser(context, level, k, { x, width, top, height }) {
    const { columns, rows, levels } = this.tiles.shape;
    for (let up = 1; up <= 5 && level + up < levels; up++) {
      const parent = Math.floor(k / 2 ** up);
      const image = this.tiles.image(`${this.recording?.index}/${this.scale}/${level + up}/${parent}`);
      if (!image) continue;
      const part = columns / 2 ** up;
      context.drawImage(image, (k - parent * 2 ** up) * part, 0, part, rows, x, top, width, height);
      return;
    }
  }

  /** Chooses colours by the levels of the visible tiles and the user's settings. @param {string[]} keys of the tiles */
  updateColours(keys) {
    const parts = keys.map((key) => this.tiles.data(key)).filter((data) => data !== null);
    if (!parts.length) return;
    const [low, high] = usualLevels(/** @type {Uint8Array[]} */ (parts));
    const floor = low + this.floor * 2, top = Math.max(floor + 12, high - this.contrast * 2);
    const levels = `${this.theme} ${Math.round(floor / 8)} ${Math.round(top / 8)}`;
    if (levels === this.lastLevels) return;
    this.lastLevels = levels;
    this.tiles.setColours(levelColours(this.theme, floor, top));
  }

  /** Intervals that were marked as having no other events. @returns {number[][]} */
  get emptyIntervals() {
    return this.recording?.checked ? [[0, this.duration]] : this.recording?.empty ?? [];
  }

  /** Draws empty intervals, the selection, the selected event and the band.
   * @param {CanvasRenderingContext2D} context @param {number} top @param {number} bottom
   * @param {CSSStyleDeclaration} style */
  drawSpans(context, top, bottom, style) {
    for (const [onset, offset] of this.emptyIntervals) {
      context.fillStyle = style.getPropertyValue("--right");
      context.fillRect(this.x(onset), top, this.x(offset) - this.x(onset), 4);
    }
    if (this.selection) {
      const [a, b] = this.selection.map((time) => this.x(time));
      context.fillStyle = "rgb(80 160 255 / .22)";
      context.fillRect(a, top, b - a, bottom - top);
      context.strokeStyle = "rgb(80 160 255 / .95)";
      context.strokeRect(a, top, b - a, bottom - top);
    }
    const event = this.event(this.selected);
    if (event && event.recording === this.recording?.index) {
      const drag = this.drag?.event === event ? this.drag : event;
      const a = this.x(drag.onset), b = this.x(drag.offset);
      const colour = this.colourOf(event.label);
      context.fillStyle = this.theme === "light" ? "rgb(255 255 255 / .38)" : "rgb(0 0 0 / .28)";
      context.fillRect(GUTTER, top, a - GUTTER, bottom - top);
      context.fillRect(b, top, this.canvas.clientWidth - b, bottom - top);
      context.fillStyle = colour;
      for (const x of [a, b]) {
        context.fillRect(x - 1, top, 2, bottom - top);
        context.beginPath();
        context.roundRect(x - 4, (top + bottom) / 2 - 14, 8, 28, 4);
        context.fill();
      }
      if (this.band) {
        const [low, high] = this.band.map((hz) => bottom - this.height(hz) * (bottom - top));
        context.strokeStyle = colour;
        context.setLineDash([5, 4]);
        context.strokeRect(a, high, b - a, low - high);
        context.setLineDash([]);
      }
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {string} muted @param {string} line @param {number} bottom */
  drawTimes(context, muted, line, bottom) {
    const clock = this.useClock && this.recording?.began;
    const least = ((clock ? 86 : 64) * (this.offset - this.onset)) / this.width;
    const step = STEPS.find((value) => value >= least) ?? 43200;
    context.font = FONT;
    context.textAlign = "center";
    for (let k = Math.ceil(this.onset / step); k * step <= this.offset; k++) {
      const x = this.x(k * step);
      context.fillStyle = line;
      context.fillRect(Math.round(x), AXIS - 5, 1, 5);
      context.fillStyle = muted;
      const text = clock ? clockTime(clock, k * step, step) : moment(k * step, step);
      const half = context.measureText(text).width / 2;
      if (x - half > GUTTER - 8 && x + half < this.canvas.clientWidth) context.fillText(text, x, 13);
    }
    context.textAlign = "left";
    context.fillStyle = line;
    context.fillRect(GUTTER, AXIS - 1, this.width, 1);
    context.fillRect(GUTTER - 1, AXIS, 1, bottom - AXIS);
  }

  /**
   * @param {CanvasRenderingContext2D} context @param {string} muted @param {string} line @param {number} top
   * @param {number} height
   */
  drawHertz(context, muted, line, top, height) {
    context.font = FONT;
    context.textAlign = "right";
    let last = Infinity;
    for (const hz of HERTZ.filter((value) => value < this.top)) {
      const y = top + height * (1 - this.height(hz));
      if (last - y < 17 || y < top + 10 || y > top + height - 4) continue;
      last = y;
      context.fillStyle = line;
      context.fillRect(GUTTER - 5, Math.round(y), 4, 1);
      context.fillStyle = muted;
      context.fillText(frequency(hz), GUTTER - 8, y + 4);
    }
    context.textAlign = "left";
  }

  /**
   * @param {CanvasRenderingContext2D} context @param {string[]} shown @param {number} top
   * @param {CSSStyleDeclaration} style
   */
  drawLanes(context, shown, top, style) {
    const line = style.getPropertyValue("--line"), ink = style.getPropertyValue("--text");
    shown.forEach((label, number) => {
      const y = top + number * LANE, colour = this.colourOf(label);
      context.fillStyle = line;
      context.fillRect(0, y, this.canvas.clientWidth, 1);
      const c = this.probabilities.classes.indexOf(label);
      if (c >= 0) this.drawProbability(context, this.probabilities.values[c], y, colour);
      context.save();
      context.beginPath();
      context.rect(GUTTER, y, this.width, LANE);
      context.clip();
      for (const event of this.events) if (event.label === label) this.drawEvent(context, event, y, colour, style);
      if (c >= 0) this.drawProbability(context, this.probabilities.values[c], y, ink, true);
      context.restore();
      context.fillStyle = style.getPropertyValue("--surface");
      context.fillRect(0, y + 1, GUTTER, LANE - 1);
      context.fillStyle = colour;
      context.fillRect(0, y + 4, 3, LANE - 7);
      context.fillStyle = ink;
      context.font = FONT;
      context.fillText(fitted(context, label, GUTTER - 12), 8, y + LANE / 2 + 4);
    });
  }

  /** Draws probabilities as an area below the events, or as a line above them.
   * @param {CanvasRenderingContext2D} context @param {number[]} values @param {number} y @param {string} colour
   * @param {boolean} [isLine] */
  drawProbability(context, values, y, colour, isLine = false) {
    const { onset, offset } = this.probabilities, step = (offset - onset) / values.length;
    context.save();
    context.beginPath();
    context.rect(GUTTER, y, this.width, LANE);
    context.clip();
    context.globalAlpha = isLine ? 0.5 : 0.22;
    context.fillStyle = context.strokeStyle = colour;
    context.beginPath();
    context.moveTo(this.x(onset), y + LANE);
    values.forEach((value, k) => {
      context.lineTo(this.x(onset + k * step), y + LANE - (value / 100) * (LANE - 3));
      context.lineTo(this.x(onset + (k + 1) * step), y + LANE - (value / 100) * (LANE - 3));
    });
    context.lineTo(this.x(offset), y + LANE);
    if (isLine) context.stroke(); else context.fill();
    context.restore();
  }

  /**
   * @param {CanvasRenderingContext2D} context @param {ReviewEvent} event @param {number} y @param {string} colour
   * @param {CSSStyleDeclaration} style
   */
  drawEvent(context, event, y, colour, style) {
    const drag = this.drag?.event === event ? this.drag : event;
    const a = this.x(drag.onset), b = Math.max(this.x(drag.offset), a + 3);
    if (b < GUTTER || a > this.canvas.clientWidth) return;
    const isSelected = event.id === this.selected, isWrong = event.status === "wrong";
    context.beginPath();
    context.roundRect(a, y + 5, b - a, LANE - 9, 3);
    context.fillStyle = colour;
    context.globalAlpha = event.status === "right" ? 1 : 0.45;
    if (!isWrong) context.fill();
    context.globalAlpha = isWrong ? 0.6 : 1;
    context.strokeStyle = isSelected ? style.getPropertyValue("--focus") : colour;
    context.lineWidth = isSelected ? 2.5 : 1;
    context.stroke();
    context.lineWidth = 1;
    const mark = { right: "\u2713", wrong: "\u2715", unsure: "?", disputed: "!" }[event.status];
    if (mark && b - a > 12) {
      context.fillStyle = event.status === "right" ? "#fff" : style.getPropertyValue("--text");
      context.font = "bold 11px system-ui";
      context.fillText(mark, Math.max(a, GUTTER) + 4, y + LANE / 2 + 4);
    }
    context.globalAlpha = 1;
  }

  /** @param {CSSStyleDeclaration} style */
  drawOverview(style) {
    const context = prepare(this.overview);
    if (!context) return;
    const height = this.overview.clientHeight, scale = (this.overview.clientWidth - GUTTER) / this.duration;
    context.fillStyle = style.getPropertyValue("--muted");
    context.font = FONT;
    context.textAlign = "right";
    context.fillText("overview", GUTTER - 8, height / 2 + 4);
    context.textAlign = "left";
    context.translate(GUTTER, 0);
    for (const [onset, offset] of this.emptyIntervals) {
      context.fillStyle = style.getPropertyValue("--right-soft");
      context.fillRect(onset * scale, 0, Math.max(1, (offset - onset) * scale), height);
    }
    const row = (height - 8) / Math.max(1, this.classes.length);
    for (const event of this.allEvents) {
      const y = 4 + row * Math.max(0, this.classes.indexOf(event.label));
      const length = Math.max(1.5, (event.offset - event.onset) * scale);
      context.globalAlpha = { wrong: 0.25, open: 0.6 }[event.status] ?? 1;
      context.fillStyle = this.colourOf(event.label);
      context.fillRect(event.onset * scale, y, length, Math.max(2, row - 1));
    }
    context.globalAlpha = 1;
    const a = this.onset * scale, b = Math.max(this.offset * scale, a + 3);
    context.strokeStyle = style.getPropertyValue("--accent");
    context.lineWidth = 2;
    context.strokeRect(a + 1, 1, b - a - 2, height - 2);
    if (this.playhead !== null) {
      context.fillStyle = "#e0a800";
      context.fillRect(this.playhead * scale, 0, 1.5, height);
    }
  }

  /** The frequency band in which an event is louder than the rest of the view, from the tiles that are loaded.
   * @param {ReviewEvent} event @returns {[number, number] | null} */
  bandOf(event) {
    const perPixel = (this.offset - this.onset) / (this.width * devicePixelRatio), level = this.tiles.level(perPixel);
    const step = this.tiles.seconds(level), { columns, rows } = this.tiles.shape;
    const inside = { sums: new Float64Array(rows), n: 0 }, outside = { sums: new Float64Array(rows), n: 0 };
    for (let column = Math.floor(this.onset / step); column * step < this.offset; column++) {
      const data = this.tiles.data(`${event.recording}/${this.scale}/${level}/${Math.floor(column / columns)}`);
      if (!data) continue;
      const time = (column + 0.5) * step;
      const part = time >= event.onset && time <= event.offset ? inside : outside;
      part.n++;
      for (let row = 0; row < rows; row++) part.sums[row] += data[row * columns + (column % columns)];
    }
    if (!inside.n) return null;
    const gain = Array.from(inside.sums, (sum, row) => sum / inside.n - outside.sums[row] / Math.max(1, outside.n));
    const best = Math.max(...gain), least = best - 0.4 * Math.abs(best);
    const isLoud = (/** @type {number} */ value) => value >= least;
    const low = this.hertz(1 - Math.min(rows, gain.findLastIndex(isLoud) + 3) / rows);
    const high = this.hertz(1 - Math.max(0, gain.findIndex(isLoud) - 2) / rows);
    return [Math.max(20, low), Math.min(this.top * 0.98, Math.max(high, low * 1.2 + 50))];
  }
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} width */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}\u2026`).width > width) end--;
  return `${text.slice(0, end)}\u2026`;
}

/** Fits the canvas to its size on screen. @param {HTMLCanvasElement} canvas */
function prepare(canvas) {
  const ratio = devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (!width || !height) return null;
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d");
  if (!context) return null;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return context;
}
