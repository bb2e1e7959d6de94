(() => {
const {classes, recordings} = JSON.parse(document.getElementById("timelines").textContent);
const at = id => document.getElementById(id);
const list = at("recordings"), tip = at("tip"), wanted = at("wanted"), only = at("class"), order = at("order");
const STEPS = [.1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const LANE = 15, GAP = 3, AXIS = 18, PAGE = 25;
const most = recordings.flatMap(r => Object.values(r.parts || {})).reduce((n, row) => Math.max(n, parseInt([...row].sort().pop(), 36)), 1);
let matching = [], shown = 0;

const two = n => String(n).padStart(2, "0");
function clock(s, digits, hours) {  // h:mm:ss, or m:ss where there are no hours
  const units = Math.round(s * 10 ** digits), whole = Math.floor(units / 10 ** digits);
  const rest = digits ? "." + String(units % 10 ** digits).padStart(digits, "0") : "";
  const m = Math.floor(whole / 60) % 60, h = Math.floor(whole / 3600);
  return (hours ? h + ":" + two(m) : m) + ":" + two(whole % 60) + rest;
}
function ofDay(recording) {  // seconds after midnight at which it began
  const [h, m, s] = recording.began.split(" ")[1].split(":").map(Number);
  return 3600 * h + 60 * m + s;
}
function dayTime(s) {
  const whole = Math.round(s) % 86400;
  return two(Math.floor(whole / 3600)) + ":" + two(Math.floor(whole / 60) % 60) + ":" + two(whole % 60);
}
function lanesOf(recording) {
  const held = Object.keys(recording.each || recording.parts).map(Number);
  return only.value === "" ? held : held.filter(c => c === Number(only.value));
}
function sizes(canvas, recording) {
  const width = canvas.clientWidth, left = Math.min(150, Math.round(width * .3));
  return {width, left, span: width - left - 24, length: recording.length};
}
function fit(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  const letters = Array.from(text);
  while (letters.length && pen.measureText(letters.join("") + "\u2026").width > room) letters.pop();
  return letters.join("") + "\u2026";
}
function draw(canvas, recording) {
  const {width, left, span, length} = sizes(canvas, recording);
  const lanes = lanesOf(recording), bottom = lanes.length * (LANE + GAP), ratio = window.devicePixelRatio || 1;
  const quiet = getComputedStyle(document.documentElement).getPropertyValue("--quiet");
  canvas.style.height = bottom + AXIS + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round((bottom + AXIS) * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const ink = getComputedStyle(canvas).color;
  lanes.forEach((c, i) => {
    const top = i * (LANE + GAP);
    pen.fillStyle = ink;
    pen.textAlign = "right";
    pen.fillText(fit(pen, classes[c], left - 8), left - 8, top + LANE / 2 + 1);
    pen.fillStyle = `rgba(0, 114, 178, .07)`;
    pen.fillRect(left, top, span, LANE);
    if (recording.each) {
      const e = recording.each[c];
      for (let k = 0; k < e.length; k += 3) {
        pen.fillStyle = `rgba(0, 114, 178, ${.3 + .7 * e[k + 2] / 100})`;
        pen.fillRect(left + span * e[k] / 100 / length, top, Math.max(1.5, span * e[k + 1] / 100 / length), LANE);
      }
    } else {
      const row = recording.parts[c], cell = span / row.length;
      for (let k = 0; k < row.length; k++) if (row[k] !== "0") {
        pen.fillStyle = `rgba(0, 114, 178, ${.2 + .8 * Math.sqrt(parseInt(row[k], 36) / most)})`;
        pen.fillRect(left + k * cell, top, Math.max(1, cell - .3), LANE);
      }
    }
  });
  axis(pen, recording, left, span, length, bottom, quiet);
}
function axis(pen, recording, left, span, length, bottom, colour) {
  const start = recording.began ? ofDay(recording) : 0;
  const step = STEPS.find(s => length / s * 62 <= span) || Math.ceil(length / span * 62 / 86400) * 86400;
  pen.fillStyle = pen.strokeStyle = colour;
  pen.textAlign = "center";
  pen.font = "11px system-ui, sans-serif";
  for (let t = Math.ceil(start / step - 1e-9) * step; t <= start + length * (1 + 1e-9); t += step) {
    const x = left + span * (t - start) / length;
    pen.fillRect(x - .5, bottom - 1, 1, 4);
    const text = recording.began ? (step < 60 ? dayTime(t) : dayTime(t).slice(0, 5)) : clock(t, step < 1 ? 1 : 0, length >= 3600);
    pen.fillText(text, x, bottom + 11);
  }
}
function under(canvas, recording, event) {  // description of what is under the pointer
  const {left, span, length} = sizes(canvas, recording), box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left, lane = Math.floor((event.clientY - box.top) / (LANE + GAP));
  const c = lanesOf(recording)[lane], t = (x - left) / span * length, reach = 4 / span * length;
  if (c === undefined || x < left - 4) return "";
  const when = (a, b, digits) => clock(a, digits, length >= 3600) + " \u2013 " + clock(b, digits, length >= 3600) +
    (recording.began ? "\n" + dayTime(ofDay(recording) + a) + " (recorder clock)" : "");
  if (recording.parts) {
    const row = recording.parts[c], k = Math.floor(t / length * row.length), n = parseInt(row[k] || "0", 36);
    const many = n === 35 ? "35 events or more" : n + (n === 1 ? " event" : " events");
    return n ? classes[c] + ": " + many + "\n" + when(k * length / row.length, (k + 1) * length / row.length, 0) : "";
  }
  const e = recording.each[c];
  let best = -1, near = reach;
  for (let k = 0; k < e.length; k += 3) {
    const gap = Math.max(e[k] / 100 - t, t - (e[k] + e[k + 1]) / 100, 0);
    if (gap < near) [best, near] = [k, gap];
  }
  if (best < 0) return "";
  return classes[c] + ", confidence " + (e[best + 2] / 100).toFixed(2) + "\n" +
    when(e[best] / 100, (e[best] + e[best + 1]) / 100, 2);
}
function point(canvas, recording, event) {
  const text = under(canvas, recording, event);
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const wide = tip.offsetWidth, high = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(event.clientX - wide / 2, innerWidth - wide - 4)) + "px";
  tip.style.top = (event.clientY - high - 14 < 0 ? event.clientY + 18 : event.clientY - high - 14) + "px";
}
function element(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}
function lasting(s) {
  if (s < 60) return s.toFixed(1) + " s";
  return s < 3600 ? Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s" : Math.floor(s / 3600) + " h " + Math.floor(s / 60 % 60) + " min";
}
function add(recording) {
  const box = document.createElement("article");
  box.className = "recording";
  const words = [lasting(recording.seconds)];
  if (recording.began) words.push("started " + recording.began);
  words.push(recording.events.toLocaleString("en") + (recording.events === 1 ? " event" : " events"));
  if (recording.left_out) words.push(recording.left_out + " rarer classes not drawn");
  const note = element("p", words.join(" \u00b7 "));
  note.className = "note";
  box.append(element("h3", recording.name), note);
  if (lanesOf(recording).length) {
    const canvas = document.createElement("canvas");
    canvas.recording = recording;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "timeline of " + recording.name);
    for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, e => point(canvas, recording, e));
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    box.append(canvas);
  }
  list.append(box);
  box.querySelectorAll("canvas").forEach(canvas => draw(canvas, recording));
}
function more() {
  matching.slice(shown, shown + PAGE).forEach(add);
  shown = Math.min(matching.length, shown + PAGE);
  at("more").hidden = shown >= matching.length;
  at("count").textContent = matching.length > shown ? `${shown} of ${matching.length} are shown.` : "";
  if (!matching.length) at("count").textContent = "No recording matches.";
}
function choose() {
  const text = wanted.value.toLowerCase(), c = only.value;
  matching = recordings.filter(r => r.name.toLowerCase().includes(text) && (c === "" || c in (r.each || r.parts)));
  if (order.value === "1") matching.sort((a, b) => b.events - a.events);
  list.textContent = "";
  shown = 0;
  more();
}
only.append(new Option("all", ""), ...classes.map((name, c) => new Option(name, c)));
wanted.addEventListener("input", choose);
for (const choice of [only, order]) choice.addEventListener("change", choose);
wanted.form.addEventListener("submit", e => e.preventDefault());
wanted.form.hidden = recordings.length < 2;
at("more").addEventListener("click", more);
addEventListener("scroll", () => { tip.hidden = true; }, {passive: true});
let width = list.clientWidth;
addEventListener("resize", () => {  // also when a phone is rotated or the page is printed
  if (list.clientWidth === width) return;
  width = list.clientWidth;
  list.querySelectorAll("canvas").forEach(canvas => draw(canvas, canvas.recording));
});
choose();
})();
