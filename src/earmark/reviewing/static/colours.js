// Colours of classes, which people with colour blindness can distinguish, and of levels.

const CLASSES = [
  "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8b5fbf", "#7a8b00", "#b5485d", "#4f7d8c",
];

/** @param {number} index @returns {string} */
export function classColour(index) { return index < 0 ? "#7b8585" : CLASSES[index % CLASSES.length]; }

/** @typedef {[number, number, number, number]} Stop position, red, green, blue */

/** @type {Record<string, Stop[]>} */
const MAPS = {
  dark: [
    [0, 8, 11, 14], [0.25, 24, 32, 68], [0.5, 104, 36, 110], [0.7, 198, 66, 82], [0.87, 247, 150, 74], [1, 254, 240, 196],
  ],
  light: [[0, 255, 255, 255], [0.3, 226, 233, 238], [0.55, 140, 176, 194], [0.78, 38, 96, 128], [1, 6, 26, 44]],
};

/**
 * A table from byte to colour, little endian RGBA, for levels from `floor` to `top`.
 * @param {string} theme @param {number} floor @param {number} top @returns {Uint32Array}
 */
export function levelColours(theme, floor, top) {
  const stops = MAPS[theme] ?? MAPS.dark;
  const table = new Uint32Array(256);
  for (let level = 0; level < 256; level++) {
    const at = Math.min(1, Math.max(0, (level - floor) / Math.max(1, top - floor)));
    let k = 1;
    while (k < stops.length - 1 && stops[k][0] < at) k++;
    const [p0, ...a] = stops[k - 1], [p1, ...b] = stops[k];
    const share = Math.min(1, Math.max(0, (at - p0) / (p1 - p0)));
    const [red, green, blue] = a.map((value, i) => Math.round(value + share * (b[i] - value)));
    table[level] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return table;
}
