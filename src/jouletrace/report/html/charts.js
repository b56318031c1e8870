"use strict";
// Charts: flame graphs of our own, all others by plotly, which is unpacked when the first of them comes into view.
jt.charts = (() => {
  let loading = null;
  const library = () => {
    loading ??= jt.unpack(document.getElementById("library").textContent).then((bytes) => {
      const script = document.createElement("script");
      script.textContent = new TextDecoder().decode(bytes);
      document.head.append(script);
      document.getElementById("library").remove();
    });
    return loading;
  };

  const themed = (spec, simulated, narrow) => {
    const fg = jt.color("fg"), soft = jt.color("soft"), line = jt.color("line"), bg = jt.color("bg");
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true };
    const layout = { margin: { l: 60, r: 16, t: 16, b: 48 }, ...spec.layout };
    layout.font = { color: fg, size: 12, family: jt.FONT };
    layout.paper_bgcolor = layout.plot_bgcolor = bg;
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key)).concat(["xaxis", "yaxis"])) layout[name] = { ...axis, ...layout[name] };
    layout.shapes = (spec.layout.shapes || []).map((shape) => ({ ...shape, line: { ...shape.line, color: soft } }));
    layout.annotations = (spec.layout.annotations || []).map((note) => ({ ...note, font: { color: soft, size: 11 } }));
    if (simulated) layout.annotations.push({ text: "SIMULATED", xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false, opacity: 0.16, textangle: -14, font: { size: narrow ? 40 : 72, color: jt.color("mark") } });
    layout.hoverlabel = { bgcolor: fg, font: { color: bg }, align: "left" };
    return [spec.data, layout];
  };

  class Chart {
    constructor(figure, plots, simulated) {
      Object.assign(this, { figure, plots, simulated });
      this.place = figure.querySelector(".plot");
      this.names = figure.dataset.plots.split(" ").filter((name) => name in plots);
      this.name = this.names[0];
      if (this.names.length) this.addTools();
      figure.chart = this;
    }
    addTools() {
      const tools = jt.make("div", { class: "tools" });
      if (this.names.length > 1) {
        const switches = this.names.map((name) => jt.button(this.plots[name].title, () => {
          this.name = name;
          switches.forEach((one) => one.setAttribute("aria-pressed", one === switches[this.names.indexOf(name)]));
          this.draw(true);
        }, { "aria-pressed": name === this.name, "data-by": name }));
        tools.append(...switches);
      }
      if (this.plots[this.name].nodes) this.addSearch(tools);
      const file = () => this.flame ? jt.saveDrawing(this.flame, this.name) : this.draw().then(() => Plotly.toImage(this.place, { format: "svg", width: this.place.clientWidth, height: this.place.clientHeight }))
        .then((url) => jt.save(`${this.simulated ? "SIMULATED-" : ""}${this.name}.svg`, decodeURIComponent(url.replace(/^data:image\/svg\+xml,/, "")), "image/svg+xml"));
      tools.append(jt.button("SVG", file, { "aria-label": `Download ${this.name} as SVG`, "data-act": "svg" }));
      this.figure.querySelector("figcaption").after(tools);
    }
    addSearch(tools) {
      const search = jt.make("input", { type: "search", placeholder: "Search", "aria-label": "Search parts" });
      const count = jt.make("span", { class: "count", role: "status", "aria-live": "polite" });
      search.addEventListener("input", () => {
        const share = this.flame?.search(search.value);
        count.textContent = share === null || share === undefined ? "" : `${jt.number(100 * share, 3)} % of the ${this.plots[this.name].title.toLowerCase()}`;
      });
      tools.append(jt.button("Whole", () => this.flame?.look(0), { "data-act": "flame-whole" }), search, count);
    }
    draw(anew = false) {
      if (!this.name || !this.place.clientWidth) return Promise.resolve();
      if (anew || !this.drawing) this.drawing = this.drawNow();
      return this.drawing;
    }
    async drawNow() {
      if (this.plots[this.name].nodes) {
        this.flame ??= new jt.Flame(this.place, this.simulated);
        this.flame.show(this.plots[this.name]);
        this.place.dataset.drawn = this.name;
        return;
      }
      await library();
      let [data, layout] = themed(this.plots[this.name], this.simulated, this.place.clientWidth < 600);
      if (jt.charts.paper) layout = { ...layout, width: 690, autosize: false };
      await Plotly.react(this.place, data, layout, { displayModeBar: false, displaylogo: false, responsive: true, showTips: false });
      this.place.dataset.drawn = this.name;
    }
  }

  const all = [];
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) entry.target.chart.draw();
  }, { rootMargin: "400px" });
  jt.redraws.push(() => all.forEach((chart) => chart.drawing && chart.draw(true)));
  return {
    paper: false, // pictures do not shrink by themselves to the width of a page
    add(figure, plots, simulated) { all.push(new Chart(figure, plots, simulated)); seen.observe(figure); },
    drawAll: () => Promise.all(all.map((chart) => chart.draw())),
  };
})();
