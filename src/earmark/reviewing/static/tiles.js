// Spectrogram tiles: fetched when they are visible, kept for a while, coloured here.

import { getBytes } from "./api.js";
import { levelColours } from "./colours.js";

const MOST = 500, AT_ONCE = 4;

/** @typedef {{data: Uint8Array | null, canvas: HTMLCanvasElement | null, version: number}} Tile */

export class Tiles {
  /** @param {{columns: number, rows: number, levels: number}} shape @param {() => void} onLoad */
  constructor(shape, onLoad) {
    this.shape = shape;
    this.onLoad = onLoad;
    /** @type {Map<string, Tile>} */
    this.tiles = new Map();
    /** @type {string[]} */
    this.wanted = [];
    /** @type {Set<string>} */
    this.loading = new Set();
    this.version = 0;
    this.colours = levelColours("dark", 60, 200);
  }

  /** @param {number} level */
  seconds(level) { return 0.001 * 2 ** level; }

  /** The level whose columns are about as wide as a pixel. @param {number} secondsPerPixel */
  level(secondsPerPixel) {
    return Math.min(this.shape.levels - 1, Math.max(0, Math.round(Math.log2(secondsPerPixel / 0.001))));
  }

  /** @param {Uint32Array} colours */
  setColours(colours) { this.colours = colours; this.version++; }

  /** Requests tiles in this order, in place of those requested before. @param {string[]} keys */
  want(keys) {
    this.wanted = keys.filter((key) => !this.tiles.has(key) && !this.loading.has(key));
    this.fetchNext();
  }

  fetchNext() {
    while (this.loading.size < AT_ONCE && this.wanted.length) this.load(/** @type {string} */ (this.wanted.shift()));
  }

  /** @param {string} key "recording/scale/level/index" */
  async load(key) {
    const [recording, ...rest] = key.split("/");
    this.loading.add(key);
    /** @type {Tile} */
    const tile = { data: null, canvas: null, version: -1 };
    try {
      tile.data = await getBytes(`recordings/${recording}/tiles/${rest.join("/")}`);
    } catch { /* is not requested again */ }
    this.loading.delete(key);
    this.tiles.set(key, tile);
    if (this.tiles.size > MOST) this.tiles.delete(/** @type {string} */ (this.tiles.keys().next().value));
    this.fetchNext();
    this.onLoad();
  }

  /** The coloured tile, if it is loaded. @param {string} key @returns {HTMLCanvasElement | null} */
  image(key) {
    const tile = this.tiles.get(key);
    if (!tile || !tile.data) return null;
    this.tiles.delete(key); // the order of the map is that of use: the first tile is dropped first
    this.tiles.set(key, tile);
    if (!tile.canvas || tile.version !== this.version) {
      tile.canvas ??= document.createElement("canvas");
      paint(tile.canvas, tile.data, this.shape.columns, this.shape.rows, this.colours);
      tile.version = this.version;
    }
    return tile.canvas;
  }

  /** @param {string} key */
  data(key) { return this.tiles.get(key)?.data ?? null; }
}

/**
 * @param {HTMLCanvasElement} canvas @param {Uint8Array} data @param {number} columns @param {number} rows
 * @param {Uint32Array} colours
 */
export function paint(canvas, data, columns, rows, colours) {
  canvas.width = columns;
  canvas.height = rows;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let k = 0; k < pixels.length; k++) pixels[k] = colours[data[k]];
  context.putImageData(image, 0, 0);
}

/** Levels between which most of the data lie. @param {Uint8Array[]} parts @returns {[number, number]} */
export function usualLevels(parts) {
  const counts = new Float64Array(256);
  let total = 0;
  for (const data of parts) for (let k = 0; k < data.length; k += 7) if (data[k]) { counts[data[k]]++; total++; }
  if (!total) return [60, 200];
  let low = 0, high = 255;
  for (let sum = 0; low < 255 && (sum += counts[low]) < 0.35 * total;) low++;
  for (let sum = 0; high > low && (sum += counts[high]) < 0.002 * total;) high--;
  return [low, Math.max(high, low + 40)];
}
