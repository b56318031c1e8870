"use strict";
// Power and other readings as lines, spans as boxes on lanes, on one axis of time, from the whole
// run down to one kernel. What lies in a pixel is thinned at every drawing: the least and the most
// of readings, and of spans how much of the pixel they fill and which of them fills most.
jt.Timeline = class {
  // Paul Tol's light palette, on which black text reads (personal.sron.nl/~pault).
  static FILLS = ["#77aadd", "#ee8866", "#44bb99", "#eedd88", "#ffaabb", "#99ddff", "#bbcc33", "#dddddd", "#aaaa00"];
  static MOST_BOXES = 5000;

  constructor(section, data, bytes, simulated) {
    Object.assign(this, { section, data, simulated });
    this.canvas = section.querySelector("canvas");
    this.status = section.querySelector(".status");
    this.whole = [0, data.length_ns];
    this.view = [0, data.length_ns];
    this.lines = data.lines.map((line) => ({ ...line, t: jt.column(bytes, line.t), v: jt.column(bytes, line.v) }));
    this.lanes = data.lanes.map((lane) => this.unpacked(lane, bytes));
    const known = Object.values(data.watts ?? {});
    this.watts = known.length ? [Math.min(...known), Math.max(...known)] : null;
    this.layOut();
    this.addTools();
    this.listen();
    this.draw();
  }

  unpacked(lane, bytes) {
    const start = jt.column(bytes, lane.start), length = jt.column(bytes, lane.length);
    const reach = new Float64Array(lane.n); // latest end so far: where spans that are still on began
    for (let i = 0, latest = 0; i < lane.n; i++) reach[i] = latest = Math.max(latest, start[i] + length[i]);
    const column = (place) => (place ? jt.column(bytes, place) : null);
    return { ...lane, start, length, reach, name: column(lane.name), row: column(lane.row), unit: column(lane.unit) };
  }

  layOut() {
    const main = this.lines.filter((line) => line.name === "power_w"), rest = this.lines.filter((line) => line.name !== "power_w");
    let y = 30;
    this.tracks = [];
    const add = (kind, item, height) => {
      this.tracks.push({ kind, item, title: y + 12, y: y + 17, height });
      y += height + 26;
    };
    for (const line of main) add("line", line, 120);
    for (const lane of this.lanes) { lane.step = lane.rows > 4 ? 9 : 17; add("lane", lane, lane.rows * lane.step); }
    for (const line of rest) add("line", line, line.name === "throttle_bits" ? 24 : 48);
    this.height = y + 4;
  }

  addTools() {
    const tools = this.section.querySelector(".tools");
    const has = (kind) => this.lanes.some((lane) => lane.kind === kind);
    tools.append(jt.button("Whole run", () => this.zoom(...this.whole), { "data-act": "whole" }));
    if (has("iteration")) tools.append(jt.button("An iteration", () => this.toIteration(), { "data-act": "iteration" }));
    if (has("kernel")) tools.append(jt.button("A kernel", () => this.toKernel(), { "data-act": "kernel" }));
    for (const [text, label, act] of [["◀", "earlier", () => this.move(-0.5)], ["▶", "later", () => this.move(0.5)], ["+", "zoom in", () => this.scale(0.5)], ["−", "zoom out", () => this.scale(2)]])
      tools.append(jt.button(text, act, { "aria-label": label, "data-act": label }));
    tools.append(jt.button("SVG", () => jt.saveDrawing(this, "timeline"), { "aria-label": "Download the timeline as SVG", "data-act": "svg" }));
    tools.hidden = false;
  }

  zoom(from, to) {
    const least = Math.min(20, this.whole[1]);
    const length = Math.min(Math.max(to - from, least), this.whole[1]);
    const start = Math.min(Math.max(from, 0), this.whole[1] - length);
    this.view = [start, start + length];
    this.draw();
  }
  move(share) { const [a, b] = this.view; this.zoom(a + share * (b - a), b + share * (b - a)); }
  scale(factor, at = 0.5) {
    const [a, b] = this.view, middle = a + at * (b - a), length = (b - a) * factor;
    this.zoom(middle - at * length, middle + (1 - at) * length);
  }
  span(lane, i, room = 0.05) {
    const length = Math.max(lane.length[i], 1);
    this.zoom(lane.start[i] - room * length, lane.start[i] + (1 + room) * length);
  }
  toKernel() {
    // The longest one in view, or the next one after it.
    const lane = this.lanes.find((one) => one.kind === "kernel");
    const [a, b] = this.view;
    let best = -1;
    for (let i = jt.place(lane.start, a); i < lane.n && lane.start[i] < b; i++) if (best < 0 || lane.length[i] > lane.length[best]) best = i;
    if (best < 0) best = jt.place(lane.start, a) % lane.n;
    this.span(lane, best, 0.4);
  }
  toIteration() {
    // One that was traced, if one was: it has kernels under it.
    const kernels = this.lanes.find((lane) => lane.kind === "kernel");
    const lanes = this.lanes.filter((lane) => lane.kind === "iteration");
    for (const lane of lanes) {
      const i = kernels ? jt.place(lane.start, kernels.start[0], true) - 1 : 0;
      if (i >= 0 && (!kernels || lane.start[i] + lane.length[i] > kernels.start[0])) return this.span(lane, i);
    }
    this.span(lanes[0], 0);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.drawNow(); });
  }
  drawNow() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const pen = jt.penOf(this.canvas, this.height);
    this.paint(pen, width);
    if (this.selection) {
      const [x0, x1] = this.selection;
      pen.rect(Math.min(x0, x1), 0, Math.abs(x1 - x0), this.height, jt.color("accent"), 0.2);
    }
    this.say();
  }
  paint(pen, width) {
    this.left = width < 600 ? 38 : 58;
    this.inner = width - this.left - 8;
    this.colors = Object.fromEntries(["bg", "fg", "soft", "line", "accent", "panel", "mark"].map((name) => [name, jt.color(name)]));
    pen.rect(0, 0, width, this.height, this.colors.bg);
    this.axis(pen);
    this.counts = {};
    for (const track of this.tracks) {
      const { item } = track;
      if (track.kind === "line") this.paintLine(pen, track, item); else this.paintLane(pen, track, item);
      const unit = item.unit && typeof item.unit === "string" ? `, ${item.unit}` : "";
      pen.text(this.left + 2, track.title, this.fitted(`${item.title}${unit}`, this.inner), this.colors.soft, { size: 11 });
    }
    if (this.simulated) pen.text(width / 2, 96, "SIMULATED", this.colors.mark, { size: 44, align: "center", alpha: 0.2, bold: true });
  }

  x(ns) { return this.left + ((ns - this.view[0]) / (this.view[1] - this.view[0])) * this.inner; }
  at(x) { return this.view[0] + ((x - this.left) / this.inner) * (this.view[1] - this.view[0]); }
  fitted(text, room, size = 11) {
    const most = Math.floor(room / (0.56 * size));
    return text.length <= most ? text : most > 3 ? `${text.slice(0, most - 1)}…` : "";
  }

  axis(pen) {
    const [a, b] = this.view, raw = (b - a) / Math.max(2, this.inner / 110);
    const power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((k) => k * power >= raw) * power;
    const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, s]) => step >= s) || ["ns", 1];
    // Deep in a run ticks count from a round moment, which is named at the left: their own digits would not fit.
    const base = a > 1000 * (b - a) || (a > 1e3 * size && size < 1e9) ? Math.floor(a / (1000 * size)) * 1000 * size : 0;
    const digits = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
    if (base) pen.text(this.left, 11, `${jt.seconds(base)} s +`, this.colors.soft, { bold: true });
    for (let t = Math.ceil(a / step) * step; t <= b; t += step) {
      const x = this.x(t);
      pen.rect(x, 28, 1, this.height - 28, this.colors.line, 0.6);
      pen.text(x, 24, `${((t - base) / size).toFixed(digits)} ${unit}`, this.colors.soft, { align: x < this.left + 20 ? "left" : x > this.left + this.inner - 24 ? "right" : "center" });
    }
  }

  paintLine(pen, track, line) {
    const { y, height } = track, [a, b] = this.view;
    const steps = line.name === "throttle_bits";
    const low = line.name.endsWith("_w") || steps || line.unit === "%" ? 0 : line.low - 0.05 * (line.high - line.low || 1);
    const high = line.high + 0.05 * (line.high - low || 1);
    const up = (value) => y + height - ((value - low) / (high - low)) * height;
    pen.rect(this.left, y + height, this.inner, 1, this.colors.line);
    const marks = up(line.low) - up(line.high) < 11 ? [line.high] : [line.low, line.high];
    if (!steps) for (const value of marks)
      pen.text(this.left - 4, Math.min(up(value) + 4, y + height), jt.number(value, 3), this.colors.soft, { align: "right", size: 10 });
    const first = Math.max(0, jt.place(line.t, a) - 1), last = Math.min(line.t.length, jt.place(line.t, b) + 1);
    if (steps) { this.paintThrottle(pen, track, line, first, last); return; }
    const points = [];
    if (last - first > 3 * this.inner) {
      for (let i = first; i < last;) {
        const px = Math.floor(this.x(line.t[i])), shown = Math.min(Math.max(px, this.left), this.left + this.inner);
        let least = Infinity, most = -Infinity, open = line.v[i];
        for (; i < last && Math.floor(this.x(line.t[i])) === px; i++) { least = Math.min(least, line.v[i]); most = Math.max(most, line.v[i]); }
        points.push(shown, up(open), shown, up(least), shown, up(most));
      }
    } else {
      // A line to a reading out of view ends at the edge, where it crosses it.
      const crossing = (i, t) => line.v[i] + ((line.v[i + 1] - line.v[i]) * (t - line.t[i])) / (line.t[i + 1] - line.t[i]);
      for (let i = first; i < last; i++) {
        const hole = i > first && line.t[i] - line.t[i - 1] > line.hole_ns;
        if (hole) points.push(NaN, NaN);
        if (line.t[i] < a) { if (i + 1 < line.t.length && line.t[i + 1] - line.t[i] <= line.hole_ns) points.push(this.left, up(crossing(i, a))); }
        else if (line.t[i] > b) { if (i > 0 && !hole) points.push(this.left + this.inner, up(crossing(i - 1, b))); }
        else points.push(this.x(line.t[i]), up(line.v[i]));
      }
    }
    pen.line(points, line.name === "power_w" ? this.colors.accent : this.colors.soft, 1.3);
    if (last - first < this.inner / 8) for (let i = first; i < last; i++) if (line.t[i] >= a && line.t[i] <= b) pen.rect(this.x(line.t[i]) - 1.5, up(line.v[i]) - 1.5, 3, 3, this.colors.accent);
  }

  throttle(bits) {
    return Object.entries(this.data.throttle).filter(([bit, name]) => (bits & bit) && name !== "gpu_idle").map(([, name]) => name);
  }
  paintThrottle(pen, track, line, first, last) {
    let from = -1;
    for (let i = first; i <= last; i++) {
      const on = i < last && this.throttle(line.v[i]).length > 0;
      if (on && from < 0) from = i;
      if (!on && from >= 0) {
        const x0 = Math.max(this.x(line.t[from]), this.left), x1 = Math.min(this.x(line.t[Math.min(i, last - 1)]), this.left + this.inner);
        if (x1 >= x0) pen.rect(x0, track.y + 4, Math.max(x1 - x0, 1), track.height - 6, "#d55e00");
        from = -1;
      }
    }
  }

  // By the mean power of a kernel where powers are known, by name otherwise.
  fill(lane, i) {
    const power = this.watts && lane.unit && lane.unit[i] ? (this.data.watts ?? {})[lane.unit[i] - 1] : undefined;
    if (power !== undefined) return jt.shade((power - this.watts[0]) / (this.watts[1] - this.watts[0] || 1));
    return jt.Timeline.FILLS[lane.name[i] % jt.Timeline.FILLS.length];
  }

  visible(lane) {
    const [a, b] = this.view;
    return [jt.place(lane.reach, a), jt.place(lane.start, b, true)];
  }

  paintLane(pen, track, lane) {
    const [first, last] = this.visible(lane);
    this.counts[lane.kind] = (this.counts[lane.kind] || 0) + (last - first);
    pen.rect(this.left, track.y, this.inner, track.height, this.colors.panel, 0.6);
    if (last - first > jt.Timeline.MOST_BOXES) { this.paintDense(pen, track, lane, first, last); return; }
    const right = this.left + this.inner;
    for (let i = first; i < last; i++) {
      const x0 = Math.max(this.x(lane.start[i]), this.left), x1 = Math.min(this.x(lane.start[i] + lane.length[i]), right);
      if (x1 < this.left || x0 > right) continue;
      const y = track.y + (lane.row ? lane.row[i] : 0) * lane.step, width = Math.max(x1 - x0, 0.8);
      pen.rect(x0, y + 1, width > 3 ? width - 0.6 : width, lane.step - 2, this.fill(lane, i));
      if (width > 28 && lane.step > 12) pen.text(x0 + 4, y + 12, this.fitted(this.data.short[lane.name[i]] ?? this.data.names[lane.name[i]], width - 8), "#111");
    }
  }
  paintDense(pen, track, lane, first, last) {
    const columns = Math.ceil(this.inner), [a, b] = this.view, scale = columns / (b - a);
    for (let row = 0; row < lane.rows; row++) {
      const filled = new Float64Array(columns), most = new Float64Array(columns), which = new Int32Array(columns);
      for (let i = first; i < last; i++) {
        if (lane.row && lane.row[i] !== row) continue;
        const from = Math.max((lane.start[i] - a) * scale, 0), to = Math.min((lane.start[i] + lane.length[i] - a) * scale, columns);
        for (let c = Math.floor(from); c < columns && c <= to; c++) {
          const part = Math.min(to, c + 1) - Math.max(from, c);
          filled[c] += part;
          if (part >= most[c]) { most[c] = part; which[c] = i; }
        }
      }
      for (let c = 0; c < columns; c++)
        if (filled[c] > 0) pen.rect(this.left + c, track.y + row * lane.step + 1, 1, lane.step - 2, this.fill(lane, which[c]), Math.min(1, 0.25 + 0.75 * filled[c]));
    }
  }

  // What lies under a point, in lines of text.
  under(x, y) {
    const track = this.tracks.find((one) => y >= one.y - 2 && y <= one.y + one.height + 2);
    if (!track || x < this.left || x > this.left + this.inner) return null;
    const t = this.at(x), item = track.item;
    if (track.kind === "line") {
      const after = jt.place(item.t, t), i = after > 0 && (after >= item.t.length || t - item.t[after - 1] < item.t[after] - t) ? after - 1 : after;
      const value = item.name === "throttle_bits" ? this.throttle(item.v[i]).join(", ") || "not held down" : `${jt.number(item.v[i])} ${item.unit}`;
      return [item.title, value, `at ${jt.seconds(item.t[i])} s`];
    }
    const row = Math.floor((y - track.y) / item.step), slack = (1.5 / this.inner) * (this.view[1] - this.view[0]);
    for (let i = jt.place(item.start, t + slack, true) - 1, tries = 0; i >= 0 && tries < 3000; i--, tries++) {
      if ((item.row ? item.row[i] : 0) !== row) continue;
      if (item.start[i] + item.length[i] + slack < t) { if (!item.row) break; continue; }
      const figures = item.unit && item.unit[i] ? this.data.units[item.unit[i] - 1] : "";
      return [this.data.names[item.name[i]], `${item.kind}, ${jt.duration(item.length[i])}, at ${jt.seconds(item.start[i])} s`, ...(figures ? [figures] : [])];
    }
    return null;
  }

  say() {
    const [a, b] = this.view;
    const seen = Object.entries(this.counts).filter(([, n]) => n).map(([kind, n]) => `${n} ${kind === "memcpy" ? "copies" : n === 1 ? kind : kind === "launch" ? "launches" : `${kind}s`}`);
    const digits = Math.max(0, Math.ceil(3 - Math.log10((b - a) / 1e9)));
    const [from, to] = [a, b].map((ns) => String(+(ns / 1e9).toFixed(Math.min(digits, 9))));
    this.status.textContent = `${from} s to ${to} s (${jt.duration(b - a)})${seen.length ? `: ${seen.join(", ")}` : ""}`;
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    jt.tip(this.under(event.clientX - box.left, event.clientY - box.top), event.clientX, event.clientY);
  }

  listen() {
    const { canvas } = this, fingers = new Map();
    const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
    const share = (x) => (x - this.left) / this.inner;
    canvas.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, place(event));
      canvas.setPointerCapture(event.pointerId);
      if (event.pointerType === "mouse" && event.button === 0) this.selection = [place(event), place(event)];
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (before === undefined) { this.hover(event); return; }
      fingers.set(event.pointerId, place(event));
      if (this.selection) { this.selection[1] = place(event); this.draw(); return; }
      const others = [...fingers].filter(([id]) => id !== event.pointerId);
      if (others.length) {
        const still = others[0][1], factor = Math.abs(before - still) / Math.max(Math.abs(place(event) - still), 1);
        this.scale(Math.min(Math.max(factor, 0.5), 2), share(still));
      } else this.move(-(place(event) - before) / this.inner);
    });
    const up = (event) => {
      const was = fingers.get(event.pointerId);
      fingers.delete(event.pointerId);
      const chosen = this.selection;
      this.selection = null;
      if (chosen && Math.abs(chosen[1] - chosen[0]) > 4) this.zoom(this.at(Math.min(...chosen)), this.at(Math.max(...chosen)));
      else if (event.pointerType !== "mouse" && was !== undefined) this.hover(event);
      if (chosen) this.draw();
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", (event) => { fingers.delete(event.pointerId); this.selection = null; });
    canvas.addEventListener("pointerleave", () => jt.tip(null));
    canvas.addEventListener("dblclick", () => this.zoom(...this.whole));
    canvas.addEventListener("wheel", (event) => {
      // Plain wheels scroll the page; with a modifier, or sideways, they are meant for the timeline.
      if (event.ctrlKey || event.metaKey) { event.preventDefault(); this.scale(2 ** (event.deltaY / 200), share(place(event))); }
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); this.move(event.deltaX / this.inner); }
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const act = { ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), "+": () => this.scale(0.5), "=": () => this.scale(0.5), "-": () => this.scale(2), 0: () => this.zoom(...this.whole) }[event.key];
      if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
    });
    new ResizeObserver(() => this.draw()).observe(this.section);
    jt.redraws.push(() => this.draw());
  }
};

// Seconds since the beginning with as many digits as distinguish nanoseconds, no more than needed.
jt.seconds = (ns) => (ns / 1e9).toFixed(9).replace(/\.?0+$/, "");
