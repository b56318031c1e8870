"use strict";
// Tables are in the page as they are; here they learn to be sorted, searched and saved.
jt.table = (place, simulated) => {
  const table = place.querySelector("table"), body = table.tBodies[0], tools = place.querySelector(".tools");
  const headings = [...table.tHead.rows[0].cells], rows = [...body.rows];
  const count = jt.make("span", { class: "count", role: "status", "aria-live": "polite" });

  headings.forEach((heading, n) => {
    const text = heading.textContent;
    heading.textContent = "";
    heading.append(jt.button(text, () => {
      const down = heading.getAttribute("aria-sort") === "descending" || (!heading.classList.contains("num") && !heading.hasAttribute("aria-sort"));
      headings.forEach((one) => one.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "ascending" : "descending");
      sort(n, down ? 1 : -1, heading.classList.contains("num"));
    }));
  });

  const sort = (n, way, numeric) => {
    const key = (row) => { const cell = row.cells[n]; return numeric ? (cell.dataset.v === undefined ? NaN : +cell.dataset.v) : cell.textContent; };
    rows.map((row) => [key(row), row]).sort(([a], [b]) => {
      if (!numeric) return way * a.localeCompare(b, undefined, { numeric: true });
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // what is missing stays last
      return way * (a - b);
    }).forEach(([, row]) => body.append(row));
  };

  if ("many" in place.dataset) {
    const search = jt.make("input", { type: "search", placeholder: "Search", "aria-label": `Search ${place.dataset.title}` });
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = [row, ...row.querySelectorAll("[data-full]")].map((one) => one.dataset.full ?? one.textContent).join(" ").toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = words.length ? `${shown} of ${rows.length}` : "";
    });
    tools.append(search);
  }
  if ("more" in place.dataset) {
    const more = jt.button("All columns", () => more.setAttribute("aria-pressed", place.classList.toggle("all")), { "aria-pressed": "false" });
    tools.append(more);
  }
  tools.append(jt.button("CSV", () => jt.save(`${simulated ? "SIMULATED-" : ""}${place.id}.csv`, csv(), "text/csv"), { "aria-label": `Download ${place.dataset.title || "the table"} as CSV`, "data-act": "csv" }), count);
  tools.hidden = false;

  // Numbers in SI units with the ends of their intervals; a cell that begins like a formula is made text.
  const csv = () => {
    const quote = (text) => (/^[=+@\t]|^-(?!\d)/.test(text) ? `"'${text.replace(/"/g, '""')}"` : /[",\n;]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
    const ranged = headings.map((_, n) => rows.some((row) => row.cells[n].dataset.l !== undefined));
    const first = headings.flatMap((heading, n) => [heading.dataset.key, ...(ranged[n] ? [`${heading.dataset.key}_low`, `${heading.dataset.key}_high`] : [])]);
    const lines = [...body.rows].filter((row) => !row.hidden).map((row) => [...row.cells].flatMap((cell, n) => {
      const { v, l, h } = cell.dataset;
      const plain = headings[n].classList.contains("num") && v === undefined && ranged[n] ? "" : cell.dataset.full ?? cell.textContent;
      return [v ?? plain, ...(ranged[n] ? [l ?? "", h ?? ""] : [])];
    }));
    if (simulated) { first.push("SIMULATED"); lines.forEach((line) => line.push("true")); }
    return [first, ...lines].map((line) => line.map(quote).join(",")).join("\n") + "\n";
  };
};
