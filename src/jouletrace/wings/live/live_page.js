"use strict";
// The page of a monitor: asks for what is new, keeps the last minutes, and draws a line for each quantity.
(() => {
  const EVERY_MS = 1000, PATIENCE_MS = 5000, HEIGHT = 110, LEFT = 46;
  const kept = new Map(); // by id: the element of each device with what is drawn in it
  const status = document.querySelector(".status");
  let newest = 0, answered = 0, channels = [];

  const shown = (value, digits, unit) => (value === null || value === undefined ? "–" : `${value.toFixed(digits).replace("-", "−")}\u00a0${unit}`);
  const last = (list) => list[list.length - 1];
  const energy = (joules) => (joules === null ? "–" : joules < 1e3 ? shown(joules, 1, "J") : joules < 1e6 ? shown(joules / 1e3, 2, "kJ") : shown(joules / 1e6, 3, "MJ"));

  class Line {
    constructor(place, channel, device) {
      Object.assign(this, { channel, device });
      this.canvas = jt.make("canvas", { role: "img", "aria-label": `${channel.name} of ${device.name}, the last five minutes` });
      place.append(this.canvas);
      const tell = (event) => this.tell(event.clientX, event.clientY);
      this.canvas.addEventListener("pointermove", tell);
      this.canvas.addEventListener("click", tell);
      this.canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") jt.tip(null); });
      new ResizeObserver(() => this.draw()).observe(place);
      jt.redraws.push(() => this.draw());
    }
    get values() { return this.device.values[this.channel.key]; }
    draw() {
      const width = this.canvas.clientWidth, { time_s: times, power_limit_w: limit, window_s: span } = this.device, end = last(times);
      if (!width || !times.length) return;
      const pen = jt.penOf(this.canvas, HEIGHT), soft = jt.color("soft"), top = 22, bottom = HEIGHT - 18;
      const most = Math.max(...this.values.filter((value) => value !== null)) * 1.08 || 1;
      const x = (at) => LEFT + (1 + (at - end) / span) * (width - LEFT - 6), y = (value) => bottom - (value / most) * (bottom - top);
      pen.rect(0, 0, width, HEIGHT, jt.color("bg"));
      for (const part of [0, 0.5, 1]) {
        const value = part * most / 1.08;
        pen.line([LEFT, y(value), width - 6, y(value)], jt.color("line"));
        pen.text(LEFT - 5, y(value) + 4, jt.number(value, 3), soft, { align: "right" });
      }
      for (let minute = 0; minute <= span / 60; minute++) pen.text(x(end - 60 * minute), HEIGHT - 4, minute ? `−${minute} min` : "now", soft, { align: minute ? "center" : "right" });
      const limited = this.channel.key === "power_w" && limit && limit <= most;
      if (limited) pen.line([LEFT, y(limit), width - 6, y(limit)], jt.color("mark"));
      const points = times.flatMap((at, n) => (n && at - times[n - 1] > Math.max(5, 4 * this.device.apart_s) ? [NaN, NaN] : []).concat(this.values[n] === null ? [NaN, NaN] : [x(at), y(this.values[n])]));
      pen.line(points, jt.color("whisker"), 1.6);
      pen.text(6, 14, `${this.channel.name}, ${this.channel.unit}${limited ? `; limit ${limit} W` : ""}`, jt.color("fg"), { size: 12 });
      if (this.device.simulated) pen.text(width - 8, 14, "SIMULATED", jt.color("mark"), { align: "right", bold: true });
      this.x = x;
    }
    tell(clientX, clientY) {
      const { left } = this.canvas.getBoundingClientRect(), { time_s: times } = this.device;
      if (!this.x || !times.length) return;
      let near = 0;
      times.forEach((at, n) => { if (Math.abs(this.x(at) - clientX + left) < Math.abs(this.x(times[near]) - clientX + left)) near = n; });
      jt.tip([new Date(1000 * times[near]).toLocaleTimeString(), `${this.channel.name} ${shown(this.values[near], this.channel.digits, this.channel.unit)}`], clientX, clientY);
    }
  }

  const placed = (device) => {
    const section = jt.make("section", { class: "gpu", "aria-label": device.name }), title = jt.make("h2", {}, `${device.index}: ${device.name} `);
    if (device.simulated && !device.name.includes("SIMULATED")) title.append(jt.make("span", { class: "mark" }, "SIMULATED"));
    const cards = jt.make("ul", { class: "cards" }), runs = jt.make("p", { class: "sub" }), lines = jt.make("div", { class: "lines" });
    section.append(title, jt.make("p", { class: "sub" }, device.id), cards, runs, lines);
    document.getElementById("gpus").append(section);
    return { ...device, section, cards, runs, place: lines, lines: new Map() };
  };

  const take = (found, window_s) => {
    if (!kept.has(found.id)) kept.set(found.id, { ...placed(found), time_s: [], values: Object.fromEntries(channels.map(({ key }) => [key, []])), window_s });
    const own = kept.get(found.id), { time_s: times } = own;
    const fresh = found.time_s.filter((at) => !times.length || at > last(times)).length, from = found.time_s.length - fresh;
    times.push(...found.time_s.slice(from));
    for (const { key } of channels) own.values[key].push(...found.values[key].slice(from));
    const old = times.findIndex((at) => at >= last(times) - window_s);
    if (old > 0) [times, ...Object.values(own.values)].forEach((list) => list.splice(0, old));
    if (times.length) newest = Math.max(newest, last(times));
    own.apart_s = times.length > 1 ? (last(times) - times[0]) / (times.length - 1) : 1;
    Object.assign(own, { power_limit_w: found.power_limit_w });
    paint(own, found);
  };

  const paint = (own, found) => {
    const card = (name, value) => {
      const item = jt.make("li", { class: "card" });
      item.append(jt.make("span", { class: "label" }, name), jt.make("span", { class: "value" }, value));
      return item;
    };
    const cards = [card("energy so far", energy(found.energy_j))];
    for (const channel of channels) {
      const values = own.values[channel.key];
      if (values.every((value) => value === null)) continue; // this device doesn't report it
      cards.push(card(channel.name, shown(last(values), channel.digits, channel.unit)));
      if (!own.lines.has(channel.key)) own.lines.set(channel.key, new Line(own.place, channel, own));
      own.lines.get(channel.key).draw();
    }
    own.cards.replaceChildren(...cards);
    const used = (one) => `${one.name || "?"} (pid ${one.pid}${one.memory_bytes === null ? "" : `, ${shown(one.memory_bytes / 2 ** 30, 2, "GiB")}`})`;
    const holes = found.hole_s ? `; ${shown(found.hole_s, 1, "s")} without readings` : "";
    own.runs.textContent = `${found.processes.length ? `runs ${found.processes.map(used).join(", ")}` : "no process is listed by the driver"}${holes}`;
  };

  const about = ({ simulated, command, work }) => {
    document.querySelector(".banner").hidden = !simulated;
    document.body.classList.toggle("simulated", simulated);
    document.title = `${simulated ? "SIMULATED: " : ""}jouletrace monitor`;
    const what = document.getElementById("what"), lines = command ? [`runs ${command}`] : [];
    const each = (value, unit) => (value === null ? "–" : `${jt.number(value)}\u00a0${unit}`);
    if (work) lines.push(`${work.unit}: ${jt.number(work.done, 12)} done, ${each(work.per_s, "/s")}, ${each(work.j_each, "J each")}${work.problem ? ` (${work.problem})` : ""}`);
    what.textContent = lines.join(" · ");
    what.hidden = !lines.length;
  };

  const ask = async () => {
    try {
      const answer = await fetch(`/history?after=${newest}`, { signal: AbortSignal.timeout(PATIENCE_MS) }), found = await answer.json();
      channels = found.channels;
      about(found);
      found.devices.forEach((device) => take(device, found.window_s));
      answered = Date.now();
      const late = newest ? found.time_s - newest : 0;
      status.textContent = !newest ? "waiting for the first reading" : late > 10 ? `the last reading is ${late.toFixed(0)}\u00a0s old` : `live: ${found.devices.length} device${found.devices.length > 1 ? "s" : ""}`;
      document.body.dataset.ready = "yes";
    } catch {
      status.textContent = `the monitor has ended or can't be reached${answered ? ` since ${new Date(answered).toLocaleTimeString()}: this is what it had recorded` : ""}`;
    }
    setTimeout(ask, document.hidden ? 10 * EVERY_MS : EVERY_MS);
  };
  document.addEventListener("visibilitychange", () => jt.redraw());
  ask();
})();
