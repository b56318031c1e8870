// The page of the atlas: filters, two plots and the table of the same configurations.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const scatter = document.getElementById("scatter"), shares = document.getElementById("shares"), of = document.getElementById("of");
  const groups = JSON.parse(shares.dataset.groups), filters = [...document.querySelectorAll("#filters [data-name]")];
  const colors = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#8c564b", "#666666", "#9a9a00"];
  const symbols = ["circle", "diamond-open", "square", "x"], models = [...new Set(data.map((row) => row.model))], modes = [...new Set(data.map((row) => row.mode))];
  const text = (value) => String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); // plotly reads tags in labels
  const name = (row) => [...(new Set(data.map((one) => one.gpu)).size > 1 ? [row.gpu.replace(/^NVIDIA /, "").split(" ")[0]] : []), row.model, row.batch, row.mode].join(" · ");
  const labels = new Map(); // one that was measured again has a number, or its bars would be stacked
  data.map(name).forEach((one, i, all) => { const before = all.slice(0, i).filter((other) => other === one).length; labels.set(data[i], text(before ? `${one} · ${before + 1}` : one)); });
  const label = (row) => labels.get(row);
  const ends = (rows, name) => ({ type: "data", symmetric: false, array: rows.map((row) => (row[`${name}_high`] ?? row[name]) - row[name]), arrayminus: rows.map((row) => row[name] - (row[`${name}_low`] ?? row[name])), thickness: 1 });
  const look = { font: { family: "system-ui, sans-serif", size: 12 }, margin: { l: 70, r: 16, t: 34, b: 48 }, ...(innerWidth < 700 && { legend: { orientation: "h", y: -0.3 } }), hoverlabel: { align: "left" } };

  const points = (rows) => models.flatMap((model, i) => modes.map((mode, k) => {
    const some = rows.filter((row) => row.model === model && row.mode === mode && row.iteration_ms > 0 && row.energy_per_sample_j > 0);
    return { type: "scatter", mode: "markers", name: text(`${model} · ${mode}`), x: some.map((row) => row.iteration_ms), y: some.map((row) => row.energy_per_sample_j),
      error_x: ends(some, "iteration_ms"), error_y: ends(some, "energy_per_sample_j"), marker: { color: colors[i % colors.length], symbol: symbols[k % symbols.length], size: 10 },
      text: some.map((row) => `${label(row)}<br>trust: ${text(row.trust)}`), hovertemplate: "%{text}<br>%{x:.4g} ms, %{y:.4g} J per sample<extra></extra>" };
  })).filter((trace) => trace.x.length);

  const bars = (rows) => groups.map((group, i) => {
    const own = rows.map((row) => row.split[group] ?? [0, 0, []]);
    return { type: "bar", orientation: "h", name: text(group), y: rows.map(label), x: own.map((one) => one[+of.value]), customdata: own.map((one) => text(one[2].join(", "))),
      marker: { color: i === groups.length - 1 ? "#d0d0d0" : colors[i % colors.length] }, hovertemplate: "%{y}<br>%{x:.1%}<br>%{customdata}" };
  }).filter((trace) => trace.x.some((x) => x > 0));

  const draw = () => {
    const chosen = filters.filter((one) => one.value);
    const kept = data.map((row) => chosen.every((one) => String(row[one.dataset.name]) === one.value)), rows = data.filter((_, i) => kept[i]);
    document.querySelectorAll("tr[data-row]").forEach((line) => { line.hidden = !kept[+line.dataset.row]; });
    document.getElementById("count").textContent = `${rows.length} of ${data.length}`;
    const plain = { displaylogo: false, responsive: true };
    Plotly.react(scatter, points(rows), { ...look, height: 460, xaxis: { type: "log", title: { text: "time of an iteration, back to back (ms)" } }, yaxis: { type: "log", tickformat: "~g", automargin: true, title: { text: "energy per sample (J)", standoff: 16 } } }, plain);
    Plotly.react(shares, bars(rows), { ...look, barmode: "stack", height: 110 + 22 * rows.length, xaxis: { title: { text: `share of ${of.selectedOptions[0].text}` }, tickformat: ".0%" }, yaxis: { automargin: true, autorange: "reversed", type: "category" }, legend: { traceorder: "normal", ...(innerWidth < 700 && { orientation: "h", y: -0.07 }) } }, plain);
    document.body.dataset.shown = rows.length;
  };

  jt.table(document.getElementById("atlas"), document.body.classList.contains("simulated"));
  jt.unpack(document.getElementById("library").textContent).then((bytes) => {
    document.head.append(Object.assign(document.createElement("script"), { textContent: new TextDecoder().decode(bytes) }));
    if (!data.some((row) => Object.values(row.split).some(([energy]) => energy > 0))) of.value = "1"; // times are known at least
    [...filters, of].forEach((one) => one.addEventListener("change", draw));
    draw();
  });
})();
