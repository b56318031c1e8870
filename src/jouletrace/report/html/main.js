"use strict";
// Puts the page to work, run by run: the one in view first.
(() => {
  const root = document.documentElement, tabs = [...document.querySelectorAll("[role=tab]")], sections = [...document.querySelectorAll(".run")];
  const started = new Set();

  const start = async (section) => {
    if (started.has(section)) return;
    started.add(section);
    const holder = document.getElementById(`data-${section.id}`);
    const { plots, timeline, simulated } = JSON.parse(holder.textContent);
    section.querySelectorAll(".table").forEach((place) => jt.table(place, simulated));
    section.querySelectorAll("figure[data-plots]").forEach((figure) => jt.charts.add(figure, plots, simulated));
    if (timeline) section.timeline = new jt.Timeline(section.querySelector(".timeline"), timeline, await jt.unpack(timeline.data), simulated);
    section.dataset.ready = "yes";
  };

  const show = (id) => {
    for (const section of sections) section.hidden = tabs.length > 0 && section.id !== id;
    for (const tab of tabs) {
      const on = tab.getAttribute("aria-controls") === id;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
    }
    start(document.getElementById(id));
    aim();
  };
  tabs.forEach((tab, n) => {
    tab.addEventListener("click", () => show(tab.getAttribute("aria-controls")));
    tab.addEventListener("keydown", (event) => {
      const next = { ArrowRight: n + 1, ArrowLeft: n - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (next === undefined) return;
      const tab = tabs[(next + tabs.length) % tabs.length];
      tab.focus(); tab.click(); event.preventDefault();
    });
  });
  if (tabs.length) tabs[0].parentElement.hidden = false;
  document.querySelectorAll(".together .table, .compared .table").forEach((place) => jt.table(place, document.body.classList.contains("simulated")));

  document.querySelectorAll(".compared figure[data-plots]").forEach((figure) => {
    const { plots, simulated } = JSON.parse(document.getElementById(`data-${figure.closest(".compared").id}`).textContent);
    jt.charts.add(figure, plots, simulated);
  });

  // Each section has an address of its own, which its heading and the line at the top link to.
  for (const part of document.querySelectorAll(".run [data-name]")) {
    part.id = `${part.closest(".run").id}-${part.dataset.name}`;
    part.querySelector("h3")?.append(jt.make("a", { class: "link", href: `#${part.id}`, "aria-label": "Link to this section" }, "#"));
  }
  const aim = () => {
    const shown = sections.find((section) => !section.hidden);
    for (const link of document.querySelectorAll("[data-section]")) {
      const part = shown?.querySelector(`[data-name="${link.dataset.section}"]`);
      link.parentElement.hidden = !part;
      if (part) link.href = `#${part.id}`;
    }
  };
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1))), section = target?.closest(".run");
    if (section && section.hidden) show(section.id);
    target?.scrollIntoView();
  };
  addEventListener("hashchange", follow);

  // Paper is white, and has no tabs and nothing to unfold.
  let before;
  addEventListener("beforeprint", () => {
    before = [root.dataset.theme, sections.map((section) => section.hidden), [...document.querySelectorAll("details")].map((one) => one.open)];
    jt.charts.paper = true;
    jt.choose("light");
    sections.forEach((section) => { section.hidden = false; start(section); });
    document.querySelectorAll("details.provenance").forEach((one) => { one.open = true; });
    sections.forEach((section) => section.timeline?.drawNow());
    jt.charts.drawAll();
  });
  addEventListener("afterprint", () => {
    const [chosen, hidden, open] = before;
    sections.forEach((section, n) => { section.hidden = hidden[n]; });
    document.querySelectorAll("details").forEach((one, n) => { one.open = open[n]; });
    jt.charts.paper = false;
    jt.choose(chosen);
  });

  show(sections[0].id);
  if (location.hash) follow();
})();
