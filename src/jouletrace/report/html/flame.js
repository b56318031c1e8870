"use strict";
// Where energy or time goes: each part as wide as what it takes, its own parts under it. A click looks into one.
jt.shade = (share) => {
  const stops = [[255, 247, 188], [254, 196, 79], [222, 104, 28]]; // after ColorBrewer's YlOrBr: also distinct in grey
  const at = 2 * Math.min(Math.max(share, 0), 1), k = Math.min(Math.floor(at), 1);
  return `rgb(${stops[k].map((from, i) => Math.round(from + (at - k) * (stops[k + 1][i] - from))).join(",")})`;
};

// A change from −1 to 1: blue is less, red is more, which the colour-blind distinguish too (after ColorBrewer's RdBu).
jt.changed = (share) => {
  const at = Math.min(Math.abs(share), 1), end = share < 0 ? [84, 160, 205] : [240, 128, 92];
  return `rgb(${end.map((to) => Math.round(247 + (0.25 + 0.75 * at) * (to - 247))).join(",")})`;
};

jt.Flame = class {
  static ROW = 24;
  static PALE = ["#99ddff", "#eedd88", "#77aadd", "#ffaabb", "#bbcc33", "#dddddd"]; // Paul Tol's, on which black text reads

  constructor(place, simulated) {
    Object.assign(this, { place, simulated, focus: 0, chosen: 0, matching: null });
    this.canvas = jt.make("canvas", { tabindex: "0", "aria-label": place.getAttribute("aria-label") ?? "" });
    place.append(this.canvas);
    this.listen();
  }

  // Nodes: parent (-1 of the whole), name, figure, lines of the tip, width, mean power in W (or change) or null, level.
  show(spec) {
    const n = spec.nodes.length, filled = new Float64Array(n);
    this.spec = spec;
    this.width = Float64Array.from(spec.nodes, (node) => node[4]);
    this.start = new Float64Array(n);
    this.depth = new Uint16Array(n);
    spec.nodes.forEach(([parent], i) => {
      if (parent < 0) return;
      this.start[i] = this.start[parent] + filled[parent];
      this.depth[i] = this.depth[parent] + 1;
      filled[parent] += this.width[i];
    });
    this.search(this.sought ?? "");
    this.draw();
  }

  search(text) {
    this.sought = text;
    const words = text.toLowerCase().split(/\s+/).filter(Boolean), { nodes } = this.spec;
    this.matching = words.length ? nodes.map(([, name, , tip]) => words.every((word) => `${name}\n${tip}`.toLowerCase().includes(word))) : null;
    this.draw();
    if (!this.matching) return null;
    const within = new Uint8Array(nodes.length); // what lies in a match isn't counted again
    let sum = 0;
    nodes.forEach(([parent], i) => {
      within[i] = this.matching[i] || (parent >= 0 && within[parent]);
      if (this.matching[i] && !(parent >= 0 && within[parent])) sum += this.width[i];
    });
    return sum / this.width[0];
  }

  get height() { return this.spec.rows * jt.Flame.ROW + (this.spec.watts || this.spec.reach ? 34 : 4); }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width || !this.spec) return;
    this.place.style.height = `${this.height}px`;
    this.paint(jt.penOf(this.canvas, this.height), width);
  }

  // Where a node is drawn: its left edge and its width in pixels; those around the focus are as wide as all.
  box(i, width) {
    const from = this.start[this.focus], all = this.width[this.focus] || 1;
    const left = Math.max((this.start[i] - from) / all, 0), right = Math.min((this.start[i] + this.width[i] - from) / all, 1);
    return [left * width, (right - left) * width];
  }

  paint(pen, width) {
    const { nodes, watts, reach } = this.spec, row = jt.Flame.ROW, fg = jt.color("fg"), soft = jt.color("soft");
    pen.rect(0, 0, width, this.height, jt.color("bg"));
    for (let i = 0; i < nodes.length; i++) {
      const [x, wide] = this.box(i, width);
      if (wide < 0.6) continue;
      const [, name, figure, , , value, level] = nodes[i], y = this.depth[i] * row;
      const grey = (i === 0 && !reach) || ((watts || reach) && value === null);
      const fill = grey ? jt.color(i === 0 ? "line" : "track") : reach ? jt.changed(value / reach) : watts ? jt.shade((value - watts[0]) / (watts[1] - watts[0] || 1)) : jt.Flame.PALE[level % jt.Flame.PALE.length];
      const ink = grey ? fg : "#1b1f24";
      pen.rect(x, y, wide > 2 ? wide - 1 : wide, row - 1, fill, this.matching && !this.matching[i] ? 0.25 : 1);
      if (i === this.chosen && document.activeElement === this.canvas) pen.line([x + 1, y + 1, x + wide - 2, y + 1, x + wide - 2, y + row - 2, x + 1, y + row - 2, x + 1, y + 1], jt.color("accent"), 2);
      const most = Math.floor((wide - 10) / 6.4), both = `${name}  ${figure}`;
      const text = both.length <= most ? both : name.length <= most ? name : most > 3 ? `${name.slice(0, most - 1)}…` : "";
      if (text) pen.text(x + 5, y + 16, text, ink, { size: 12 });
    }
    if (watts) {
      const y = this.height - 16, long = Math.min(160, width / 3);
      for (let k = 0; k < 40; k++) pen.rect((k * long) / 40, y, long / 40 + 0.5, 10, jt.shade(k / 39));
      pen.text(long + 8, y + 9, `mean power ${jt.number(watts[0], 3)} to ${jt.number(watts[1], 3)} W`, soft);
    }
    if (reach) {
      const y = this.height - 16, percent = `${jt.number(100 * reach, 2)} %`;
      [[0, -1, `−${percent}`], [1, 1, `+${percent}${reach === 1 ? " or more" : ""}`], [2, 0, "no difference seen"]].forEach(([k, way, text]) => {
        const x = (k * Math.min(width, 480)) / 3;
        for (let part = 0; part < 30; part++) pen.rect(x + part, y, 1.5, 10, way ? jt.changed((way * (part + 1)) / 30) : jt.color("track"));
        pen.text(x + 38, y + 9, text, soft);
      });
    }
    if (this.simulated) pen.text(width / 2, Math.min(this.height / 2 + 14, 90), "SIMULATED", jt.color("mark"), { size: width < 600 ? 30 : 44, align: "center", alpha: 0.16, bold: true });
  }

  at(event) {
    const { left, top, width } = this.canvas.getBoundingClientRect(), x = event.clientX - left, level = Math.floor((event.clientY - top) / jt.Flame.ROW);
    for (let i = 0; i < this.width.length; i++) {
      if (this.depth[i] !== level) continue;
      const [from, wide] = this.box(i, width);
      if (wide >= 0.6 && x >= from && x < from + wide) return i;
    }
    return -1;
  }

  look(i) {
    this.focus = this.chosen = i;
    this.draw();
  }

  tip(i, x, y) { jt.tip(i < 0 ? null : [this.spec.nodes[i][1], this.spec.nodes[i][3]], x, y); }

  // A click looks into a part; a tap says first what a pointer above it would.
  listen() {
    const { canvas } = this;
    let touch = false, tapped = -1;
    canvas.addEventListener("pointerdown", (event) => { touch = event.pointerType === "touch"; });
    canvas.addEventListener("click", (event) => {
      const i = this.at(event), first = touch && i !== tapped;
      tapped = first ? i : -1;
      if (i >= 0 && !first) this.look(i === this.focus ? Math.max(this.spec.nodes[i][0], 0) : i);
      else if (i >= 0) { this.chosen = i; this.draw(); }
      if (touch) this.tip(first ? i : -1, event.clientX, event.clientY);
    });
    canvas.addEventListener("pointermove", (event) => { const i = this.at(event); canvas.style.cursor = i < 0 ? "default" : "pointer"; this.tip(i, event.clientX, event.clientY); });
    canvas.addEventListener("pointerleave", () => this.tip(-1));
    canvas.addEventListener("blur", () => { this.tip(-1); this.draw(); });
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("keydown", (event) => {
      const near = (step) => { // the next one on the same level
        for (let i = this.chosen + step; i >= 0 && i < this.width.length; i += step) if (this.depth[i] === this.depth[this.chosen]) return i;
        return this.chosen;
      };
      const child = () => { const i = this.spec.nodes.findIndex(([parent]) => parent === this.chosen); return i < 0 ? this.chosen : i; };
      const next = { ArrowRight: () => near(1), ArrowLeft: () => near(-1), ArrowDown: child, ArrowUp: () => Math.max(this.spec.nodes[this.chosen][0], 0) }[event.key];
      if (event.key === "Enter") this.look(this.chosen);
      else if (event.key === "Escape") this.look(0);
      else if (next && !event.ctrlKey && !event.metaKey) {
        this.chosen = next();
        this.draw();
        const { left, top, width } = canvas.getBoundingClientRect(), [x, wide] = this.box(this.chosen, width);
        this.tip(this.chosen, left + x + wide / 2, top + this.depth[this.chosen] * jt.Flame.ROW);
      } else return;
      event.preventDefault();
    });
    new ResizeObserver(() => this.draw()).observe(this.place);
    jt.redraws.push(() => this.draw());
  }
};
