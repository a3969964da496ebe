"use strict";
// The charts of a report.

function drawCharts() {
  const { data, byId, listeners } = report;
  const { amount, colour, digits, draw, duration, narrow, seriesLine, signed } = plotting;
  // A case may be called like something that every object has: constructor.
  const details = new Map(Object.entries(data.details));
  const MOST_ROWS = 30;
  const MOST_SERIES = 12;
  const SYMBOLS = ["circle", "square", "diamond", "up", "cross", "plus"];
  const KIND_SYMBOLS = { regressed: "left", improved: "right", inconclusive: "diamond" };
  let rows = [];

  const counted = (count, one, several) => `${count} ${count === 1 ? one : several}`;
  const cases = (some) => counted(some.length, "case", "cases");
  const moreLines = (left) => (left
    ? counted(left, "more line: filter the table to see it.", "more lines: filter the table to see them.")
    : "");
  const kindColour = (kind) => colour(
    { regressed: "regressed", failed: "regressed", improved: "improved", inconclusive: "unsure" }[kind] || "plain");
  const exactly = (time) => duration(time, 4); // neighbouring ticks differ
  const marker = (index, size) => (
    { colour: seriesLine(index).colour, size, symbol: SYMBOLS[index % SYMBOLS.length] });

  function short(text, most) {
    const letters = Array.from(text); // never half of one: some are two units of a string
    if (letters.length <= most) return text;
    const head = Math.floor((most - 1) / 2);
    return [...letters.slice(0, head), "…", ...letters.slice(head + 1 - most)].join("");
  }

  // Cut names to `most` characters, or up to half as many more if they would not stay different.
  function apart(names, most) {
    const different = Array.from(new Set(names));
    const alike = (room) => new Set(different.map((name) => short(name, room))).size < different.length;
    let room = most;
    while (room < 1.5 * most && alike(room)) room += 1;
    return names.map((name) => short(name, room));
  }

  // Draw a chart; screen readers read `description`.
  function picture(plot, description, traces, more) {
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", description);
    draw(plot, traces, more);
  }

  // Draw a chart with one line per case. `make` returns the traces for the rows and their heights,
  // `pick` the rows to show of many.
  function byCase(id, chosen, make, pick = (all) => all.slice(0, MOST_ROWS)) {
    const section = document.getElementById(id);
    section.hidden = chosen.length === 0;
    if (section.hidden) return;
    const everything = section.dataset.all === "yes";
    const shown = everything ? chosen : pick(chosen);
    const heights = shown.map((_, index) => -index);
    const made = make(shown, heights);
    const title = section.querySelector("h2").textContent;
    picture(section.querySelector(".plot"), `${title} of ${cases(shown)}; the table has the numbers`, made.traces, {
      height: 46 + 22 * shown.length, top: true, x: made.x, marks: made.marks, legend: made.legend,
      y: { ticks: heights, labels: apart(shown.map((row) => row.name), narrow() ? 20 : 46),
        range: [-shown.length + 0.4, 0.6], grid: false },
    });
    const button = section.querySelector("button");
    button.hidden = chosen.length <= MOST_ROWS;
    button.textContent = everything ? `Show ${MOST_ROWS} cases` : `Show all ${chosen.length} cases`;
  }

  // Return the rows that changed most, in their order.
  function mostChanged(all) {
    const far = all.slice().sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
    const kept = new Set(far.slice(0, MOST_ROWS));
    return all.filter((row) => kept.has(row));
  }

  function change() {
    const chosen = rows.filter((row) => row.change !== null).sort((a, b) => a.change - b.change);
    byCase("change", chosen, (shown, heights) => {
      const gates = shown.map((row) => row.threshold).filter((value) => value !== null);
      const gate = gates.length && gates.every((value) => value === gates[0]) ? gates[0] : null;
      document.getElementById("gated").hidden = gate === null;
      const kinds = Array.from(new Set(shown.map((row) => row.kind)));
      const traces = kinds.map((kind) => {
        const own = shown.map((row, index) => [row, heights[index]]).filter(([row]) => row.kind === kind);
        return {
          name: kind, x: own.map(([row]) => row.change), y: own.map(([, height]) => height),
          x_low: own.map(([row]) => row.change_low), x_high: own.map(([row]) => row.change_high),
          marker: { colour: kindColour(kind), size: 9, symbol: KIND_SYMBOLS[kind] || "circle" },
          text: own.map(([row]) => {
            const interval = row.change_low === null || row.change_high === null ? ""
              : ` (${signed(row.change_low)} to ${signed(row.change_high)})`;
            return `${row.name}\n${signed(row.change)}${interval}, ${row.kind}`;
          }),
        };
      });
      // A gate of 5% allows 5% more time per item.
      const marks = [{ x: 0, colour: colour("muted") }];
      if (gate !== null) marks.push({ x: 1 / (1 + gate) - 1, colour: colour("regressed"), dash: "6 4" });
      // Zero and the gate are in the picture, however far the changes are from them.
      traces.push({ x: marks.map((mark) => mark.x), y: marks.map(() => 0), listed: false });
      return { traces, marks, legend: kinds.length > 1, x: { format: signed } };
    }, mostChanged);
  }

  function batch() {
    const section = document.getElementById("batch");
    const panels = section.querySelector(".panels");
    const functions = new Map();
    for (const row of rows) {
      if (row.batch_size === null) continue;
      // Rates in two units have no axis in common.
      const name = `${row.panel} in ${row.unit}`;
      const series = functions.get(name) || functions.set(name, new Map()).get(name);
      (series.get(row.series) || series.set(row.series, []).get(row.series)).push(row);
    }
    panels.textContent = "";
    let left = 0;
    section.hidden = false; // what is hidden has no width to draw in
    const found = [];
    for (const [name, all] of functions) {
      const series = Array.from(all).filter(([, points]) => new Set(points.map((point) => point.batch_size)).size > 1);
      series.sort(([a], [b]) => a.localeCompare(b));
      left += Math.max(0, series.length - MOST_SERIES);
      if (series.length) found.push([panelOf(panels, series[0][1][0].panel), name, series.slice(0, MOST_SERIES)]);
    }
    // All panels have their places before one is drawn in the width that it has.
    found.forEach(([plot, name, series]) => panel(plot, name, series));
    section.hidden = found.length === 0;
    section.querySelector(".note").textContent = moreLines(left);
  }

  function panelOf(panels, title) {
    const box = document.createElement("div");
    const heading = document.createElement("h3");
    const plot = document.createElement("div");
    heading.textContent = title;
    plot.className = "plot";
    box.append(heading, plot);
    panels.append(box);
    return plot;
  }

  function panel(plot, name, series) {
    const names = apart(series.map(([label]) => label), 34);
    const traces = series.map(([label, points], index) => {
      points.sort((a, b) => a.batch_size - b.batch_size);
      return {
        name: names[index], line: seriesLine(index), marker: marker(index, 7),
        x: points.map((point) => point.batch_size), y: points.map((point) => point.throughput),
        y_low: points.map((point) => point.low), y_high: points.map((point) => point.high),
        text: points.map((point) => `${label}\nbatch size ${point.batch_size}: ${amount(point.throughput, 4)} ${point.unit}`),
      };
    });
    const ticks = Array.from(new Set(traces.flatMap((trace) => trace.x))).sort((a, b) => a - b);
    curves(plot, `Throughput of ${name} against batch size; the table has the numbers`, traces, series[0][1][0].unit,
      { log: true, ticks, labels: ticks.map(String), title: "batch size" });
  }

  // Draw lines of several series, whose values have one logarithmic axis.
  function curves(plot, description, traces, unit, x) {
    picture(plot, description, traces, { height: 330, legend: true, x, y: { log: true, title: unit } });
  }

  function latency() {
    const chosen = rows.filter((row) => row.p50_ms !== null);
    byCase("latency", chosen, (shown, heights) => {
      const spans = { x: [], y: [] };
      shown.forEach((row, index) => {
        spans.x.push(row.p50_ms, row.p99_ms, null);
        spans.y.push(heights[index], heights[index], null);
      });
      const traces = [{ ...spans, listed: false, line: { colour: colour("line"), width: 5 } }];
      ["p50", "p90", "p99"].forEach((name, index) => traces.push({
        name, y: heights, x: shown.map((row) => row[`${name}_ms`]),
        marker: { colour: seriesLine(index).colour, size: 9, symbol: ["circle", "diamond", "bar"][index] },
        text: shown.map((row) => `${row.name}\n${name} ${duration(row[`${name}_ms`])}`),
      }));
      return { traces, legend: true, x: { log: true, format: exactly } };
    });
  }

  // Requests come when they are due. A line has the cases that differ only in their rate.
  function load() {
    const section = document.getElementById("load");
    const shown = rows.filter((row) => row.load.length > 0);
    section.hidden = shown.length === 0;
    if (section.hidden) return;
    const lines = new Map();
    for (const row of shown) {
      const name = row.name.replace(/-?target_qps[\d.]+/, "");
      lines.set(name, [...(lines.get(name) || []), row]);
    }
    const chosen = Array.from(lines).slice(0, MOST_SERIES);
    const names = apart(chosen.map(([name]) => name), 34);
    const traces = chosen.map(([, own], index) => {
      const points = own.map((row) => ({ ...row.load[0], name: row.name })).sort((a, b) => a.target_qps - b.target_qps);
      return {
        name: names[index], line: seriesLine(index),
        x: points.map((point) => point.target_qps), y: points.map((point) => point.p99_ms),
        marker: { colour: seriesLine(index).colour, size: 8, symbol: points.map((point) => (point.held ? "circle" : "cross")) },
        text: points.map((point) => `${point.name}\n${digits(point.target_qps)} a second: `
          + `p50 ${duration(point.p50_ms)}, p99 ${duration(point.p99_ms)}${point.held ? "" : ", not kept"}`),
      };
    });
    picture(section.querySelector(".plot"), `Latency of ${cases(shown)} against the requests a second`, traces, {
      height: 330, legend: true, x: { zero: true, title: "requests a second" },
      y: { log: true, title: "p99", format: exactly },
    });
    section.querySelector(".note").textContent = moreLines(lines.size - chosen.length);
  }

  // Cases of one precision on one device share their ceilings.
  function roofline() {
    const section = document.getElementById("roofline");
    const intensity = (row) => row.flops_per_item / row.weight_bytes_per_item;
    const chosen = rows.filter((row) => row.achieved_flops && row.weight_bytes_per_item && row.flops_per_item);
    section.hidden = chosen.length === 0;
    if (section.hidden) return;
    const [low, high] = [Math.min(...chosen.map(intensity)) / 2, Math.max(...chosen.map(intensity)) * 2];
    const roofs = new Map();
    for (const row of chosen) {
      if (row.peak_flops && row.peak_bytes) roofs.set(`${row.peak_flops} ${row.peak_bytes}`, row);
    }
    const bend = (row) => row.peak_flops / row.peak_bytes;
    const traces = Array.from(roofs.values()).map((row) => {
      const x = [low, Math.min(Math.max(bend(row), low), high), high];
      return {
        name: `${giga(row.peak_flops)}FLOP/s, ${giga(row.peak_bytes)}B/s`,
        x, y: x.map((one) => Math.min(row.peak_flops, one * row.peak_bytes)),
        line: { colour: colour("muted"), width: 1.5 },
      };
    });
    const kinds = Array.from(new Set(chosen.map((row) => `${row.framework}, ${row.mode || "inference"}`)));
    kinds.forEach((kind, index) => {
      const own = chosen.filter((row) => `${row.framework}, ${row.mode || "inference"}` === kind);
      traces.push({
        name: kind, x: own.map(intensity), y: own.map((row) => row.achieved_flops), marker: marker(index, 8),
        text: own.map((row) => `${row.name}\n${giga(row.achieved_flops)}FLOP/s at ${digits(intensity(row))} FLOP/B`),
      });
    });
    picture(section.querySelector(".plot"), `Roofline of ${cases(chosen)}`, traces, {
      height: 420, legend: true, x: { log: true, title: "FLOP for each byte of weights" },
      y: { log: true, format: giga, title: "FLOP/s" },
    });
    const rest = rows.filter((row) => row.throughput !== null).length - chosen.length;
    section.querySelector(".note").textContent = rest
      ? counted(rest, "case counts no FLOP or no weights.", "cases count no FLOP or no weights.") : "";
  }

  function giga(value) {
    const names = ["", "k", "M", "G", "T", "P"];
    const power = Math.max(0, Math.min(names.length - 1, Math.floor(Math.log10(value) / 3)));
    return `${Number((value / 1000 ** power).toPrecision(3))} ${names[power]}`;
  }

  const choice = document.getElementById("chosen");

  function fillChoice() {
    const wanted = report.get("case");
    const measured = rows.filter((row) => details.has(row.id));
    choice.textContent = "";
    for (const row of measured) choice.append(new Option(row.name, row.id));
    if (details.has(wanted) && !measured.some((row) => row.id === wanted)) {
      choice.prepend(new Option(byId.get(wanted).name, wanted));
    }
    if (details.has(wanted)) choice.value = wanted;
    document.getElementById("case").hidden = choice.options.length === 0;
    choice.form.hidden = details.size < 2;
    one();
  }

  function one() {
    const detail = details.get(choice.value);
    if (!detail) return;
    const row = byId.get(choice.value);
    const traces = [];
    // The processes of the baseline are behind the others, in grey.
    detail.before.forEach((process, index) => traces.push({
      name: "baseline", listed: index === 0, x: process.at.map((round) => round + 1), y: process.rates,
      line: { colour: colour("line"), width: 1 }, marker: { colour: colour("muted"), size: 4 },
      text: process.rates.map((rate, at) => `baseline, process ${index + 1}, round ${process.at[at] + 1}: ${rated(rate, row)}`),
    }));
    detail.processes.forEach((process, index) => {
      const name = index === 0 ? "this run" : `process ${index + 1}`;
      if (process.disturbed.length) {
        traces.push({
          name: "disturbed by other programs", marker: { colour: colour("muted"), size: 6, symbol: "cross" },
          x: process.disturbed.map(([round]) => round + 1), y: process.disturbed.map(([, rate]) => rate),
          text: process.disturbed.map(([round, rate]) => `round ${round + 1}, disturbed: ${rated(rate, row)}`),
        });
      }
      const common = { name, line: { ...seriesLine(index), width: 1 }, marker: marker(index, 5) };
      traces.push({
        ...common, x: process.at.map((round) => round + 1), y: process.rates,
        text: process.rates.map((rate, at) => `${name}, round ${process.at[at] + 1}: ${rated(rate, row)}`),
      }, {
        ...common, y: process.canaries_ms, lower: true, listed: false,
        x: process.canaries_ms.map((_, round) => 1 + (process.at[round] ?? round * process.every)),
        text: process.canaries_ms.map((time) => `${name}, canary ${duration(time)}`),
      });
    });
    const canaries = traces.some((trace) => trace.lower && trace.y.length);
    picture(document.getElementById("rounds"), `Rounds and canaries of ${row.name}`, traces, {
      height: 460, legend: traces.filter((trace) => trace.listed !== false).length > 1,
      x: { title: "round" }, y: { title: row.unit }, lower: canaries ? { title: "canary", format: exactly } : null,
    });
    document.getElementById("rounds-note").textContent = noteOf(detail);
    processTable(detail, row);
    const options = document.getElementById("options");
    options.textContent = "";
    for (const [key, value] of Object.entries(detail.options)) {
      const [term, text] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = key;
      text.textContent = typeof value === "string" ? value : JSON.stringify(value);
      options.append(term, text);
    }
  }

  const rated = (rate, row) => `${amount(rate, 4)} ${row.unit}`;

  function noteOf(detail) {
    const parts = [];
    const { rounds, left_out: leftOut } = detail.processes[0];
    if (leftOut) {
      const [count, it] = leftOut === 1 ? ["counts", "it"] : ["count", "them"];
      parts.push(`${leftOut} of ${rounds + leftOut} rounds of this run ${count} for nothing: other programs took a part of ${it}.`);
    }
    const thinned = detail.processes.concat(detail.before).find((process) => process.every > 1);
    if (thinned) parts.push(`One of ${thinned.every} rounds is shown; baseline.json has them all.`);
    return parts.join(" ");
  }

  function processTable(detail, row) {
    const body = document.querySelector("#processes tbody");
    body.textContent = "";
    const text = (value, form) => (value === null ? "" : form(value));
    const all = detail.processes.concat(detail.before);
    all.forEach((process, index) => {
      const line = body.insertRow();
      const before = index >= detail.processes.length;
      const speed = index === 0 || before ? "" : signed(process.speed - 1);
      const compiled = process.compile === "reused" ? "reused" : text(process.compile_seconds, (value) => digits(value, 4));
      const memory = process.memory_bytes === null ? "" : Math.round(process.memory_bytes / 2 ** 20).toLocaleString("en-US");
      const number = before ? index - detail.processes.length + 1 : index + 1;
      const kind = before ? "baseline" : process.fresh ? "fresh" : "this run";
      const name = `${number}, ${kind}${process.clean ? "" : ", disturbed"}`;
      [name, rated(process.throughput, row), speed, String(process.rounds), text(process.p99_ms, duration), compiled, memory]
        .forEach((content, column) => {
          const cell = line.insertCell();
          cell.textContent = content;
          if (column) cell.className = "n";
        });
    });
    // A column that is empty in all rows is left out.
    const [head, ...others] = document.getElementById("processes").rows;
    Array.from(head.cells).forEach((heading, column) => {
      const empty = others.every((line) => line.cells[column].textContent === "");
      [head, ...others].forEach((line) => { line.cells[column].hidden = empty; });
    });
  }

  function all() {
    change();
    batch();
    latency();
    load();
    roofline();
    fillChoice();
  }

  for (const [id, redraw] of Object.entries({ change, latency })) {
    const section = document.getElementById(id);
    section.querySelector("button").addEventListener("click", () => {
      section.dataset.all = section.dataset.all === "yes" ? "no" : "yes";
      redraw();
    });
  }
  choice.addEventListener("change", () => { report.keep("case", choice.value); one(); });
  document.querySelectorAll("#table td.name a").forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault();
    report.keep("case", data.rows[link.dataset.row].id);
    fillChoice();
    document.getElementById("case").scrollIntoView();
    choice.focus({ preventScroll: true });
  }));
  listeners.push((shown) => { rows = shown; all(); });
  plotting.whenItChanges(all);
}

try {
  drawCharts();
} finally {  // The table works without charts too.
  report.start();
  document.documentElement.dataset.ready = "yes";
}
