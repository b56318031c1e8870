"use strict";
// What all scripts of the report share: small helpers, the theme, unpacking of columns.
const jt = { redraws: [] };

jt.make = (tag, attributes = {}, text = "") => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text; // never innerHTML: names come from outside
  return element;
};

jt.button = (text, act, attributes = {}) => {
  const button = jt.make("button", { type: "button", ...attributes }, text);
  button.addEventListener("click", act);
  return button;
};

jt.save = (name, text, type) => {
  const link = jt.make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

jt.color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

jt.dark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// The tip beside a pointer, within the window; no lines hide it.
jt.tip = (lines, x = 0, y = 0) => {
  const tip = document.getElementById("tip");
  tip.hidden = !lines;
  if (!lines) return;
  tip.textContent = lines.join("\n");
  tip.style.left = `${Math.min(x + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
};

addEventListener("scroll", () => jt.tip(null), { passive: true, capture: true });

jt.redraw = () => jt.redraws.forEach((draw) => draw());

// Base64 of gzip to bytes. A loop, since it is megabytes.
jt.unpack = async (text) => {
  const binary = atob(text);
  const packed = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) packed[i] = binary.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// A column out of the planes that report/html/packing.py made.
jt.column = (bytes, place) => {
  const { at, n } = place;
  if (place.real) {
    const mixed = new Uint8Array(4 * n);
    for (let k = 0; k < 4; k++) for (let i = 0; i < n; i++) mixed[4 * i + k] = bytes[at + k * n + i];
    return new Float32Array(mixed.buffer);
  }
  const values = new Float64Array(n);
  for (let k = 0, weight = 1; k < place.bytes; k++, weight *= 256)
    for (let i = 0, from = at + k * n; i < n; i++) values[i] += weight * bytes[from + i];
  if (place.sum) for (let i = 1; i < n; i++) values[i] += values[i - 1];
  return values;
};

// First place in a rising column whose value is at least (or above) x.
jt.place = (column, x, above = false) => {
  let low = 0, high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (above ? column[middle] <= x : column[middle] < x) low = middle + 1; else high = middle;
  }
  return low;
};

jt.number = (x, digits = 4) => String(parseFloat(x.toPrecision(digits))).replace("-", "−");

jt.duration = (ns) => {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) if (Math.abs(ns) >= size) return `${jt.number(ns / size)} ${unit}`;
  return `${jt.number(ns)} ns`;
};
