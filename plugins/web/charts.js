"use strict";
// The charts, drawn with Plotly in the page's own colours.

// Plotly travels compressed, at a third of its size. Browsers unpack it since 2023.
async function unpackPlotly() {
  const packed = atob(document.getElementById("plotly").textContent.trim());
  const bytes = new Uint8Array(packed.length);
  for (let at = 0; at < packed.length; at += 1) bytes[at] = packed.charCodeAt(at);
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
}

function drawCharts() {
  const { data, byId, listeners } = report;
  const { css, draw, narrow, plain, signed } = plotting;
  // A case may be called like something that every object has: constructor.
  const details = new Map(Object.entries(data.details));
  const MOST_ROWS = 30;
  const MOST_SERIES = 12;
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star"];
  const KIND_SYMBOLS = { regressed: "triangle-left", improved: "triangle-right", inconclusive: "diamond" };
  let rows = [];

  const counted = (count, one, several) => `${count} ${count === 1 ? one : several}`;
  const cases = (some) => counted(some.length, "case", "cases");
  const moreLines = (left) => (left
    ? counted(left, "more line: filter the table to see it.", "more lines: filter the table to see them.")
    : "");
  const kindColour = (kind) => css(
    { regressed: "regressed", failed: "regressed", improved: "improved", inconclusive: "unsure" }[kind] || "plain");

  // The line of a series; those that share a colour are dotted.
  function seriesLine(index) {
    const colours = css("series").split(" ");
    return { color: colours[index % colours.length], width: 2, dash: index < colours.length ? "solid" : "dot" };
  }

  const colour = (index) => seriesLine(index).color;

  // Figures have all four digits, as in the table of cases; ticks none that says nothing.
  const fourDigits = (value, least = 4) => value.toLocaleString("en-US",
    { maximumSignificantDigits: 4, minimumSignificantDigits: least });

  function short(text, most) {
    const letters = Array.from(text); // never half of one: some are two units of a string
    if (letters.length <= most) return plain(text);
    const head = Math.floor((most - 1) / 2);
    return plain([...letters.slice(0, head), "…", ...letters.slice(head + 1 - most)].join(""));
  }

  // Cut names to `most` characters, or up to half as many more where they would not stay different.
  function apart(names, most) {
    const different = Array.from(new Set(names));
    const alike = (room) => new Set(different.map((name) => short(name, room))).size < different.length;
    let room = most;
    while (room < 1.5 * most && alike(room)) room += 1;
    return names.map((name) => short(name, room));
  }

  // Ticks of a logarithmic axis, as plain numbers: 1, 2, 5, 10, ...
  function logTicks(values) {
    const known = values.filter((value) => value > 0);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const decades = Math.log10(high / low);
    const powers = [];
    for (let power = Math.floor(Math.log10(low)) - 1; power <= Math.ceil(Math.log10(high)); power += 1) {
      powers.push(10 ** power);
    }
    const enough = (ticks) => ticks.filter((tick) => tick >= low && tick <= high).length >= 3;
    const few = decades > (narrow() ? 1.5 : 3) && enough(powers);
    const ticks = few ? powers : powers.flatMap((power) => [power, 2 * power, 5 * power]);
    // Plotly shows a power of ten on either side of a single value.
    const shown = low === high || enough(ticks) ? ticks : evenTicks(low, high);
    return { type: "log", tickvals: shown, ticktext: shown.map((tick) => fourDigits(tick, 1)) };
  }

  // Values that lie close together have no powers of ten between them.
  function evenTicks(low, high) {
    const least = Math.max(high - low, low / 20) / 4;
    const unit = 10 ** Math.floor(Math.log10(least));
    const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= least);
    const count = Math.ceil((high - low) / step) + 4;
    const first = Math.floor(low / step) - 1;
    return Array.from({ length: count }, (_, index) => (first + index) * step).filter((tick) => tick > 0);
  }

  // Draw a chart; `said` is what a reader hears of it.
  function picture(plot, said, traces, more) {
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", said);
    draw(plot, traces, more);
  }

  // A chart with one line per case. `make` returns the traces for the rows and their heights.
  // Where there are many cases, `pick` says which ones.
  function byCase(id, chosen, make, pick = (all) => all.slice(0, MOST_ROWS)) {
    const section = document.getElementById(id);
    section.hidden = chosen.length === 0;
    if (section.hidden) return;
    const everything = section.dataset.all === "yes";
    const shown = everything ? chosen : pick(chosen);
    const heights = shown.map((_, index) => -index);
    const plot = section.querySelector(".plot");
    const made = make(shown, heights);
    const said = `${section.querySelector("h2").textContent} of ${cases(shown)}; the table has the numbers`;
    const names = apart(shown.map((row) => row.name), narrow() ? 20 : 46);
    picture(plot, said, made.traces, {
      height: 80 + 22 * shown.length,
      xaxis: Object.assign({ side: "top", ticklabelposition: "outside" }, made.xaxis),
      yaxis: { tickvals: heights, ticktext: names, range: [-shown.length + 0.4, 0.6], showgrid: false, zeroline: false, ticks: "" },
      shapes: made.shapes || [], showlegend: Boolean(made.legend),
      legend: { orientation: "h", x: 0, y: 0, yanchor: "top", traceorder: "normal" },
    });
    const button = section.querySelector("button");
    button.hidden = chosen.length <= MOST_ROWS;
    button.textContent = everything ? `Show ${MOST_ROWS} cases` : `Show all ${chosen.length} cases`;
  }

  // Those that changed most, in their order.
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
      const line = (at, colour, dash) => ({
        type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: colour, width: 1, dash },
      });
      const kinds = Array.from(new Set(shown.map((row) => row.kind)));
      const traces = kinds.map((kind) => {
        const indices = shown.map((_, index) => index).filter((index) => shown[index].kind === kind);
        const of = (key) => indices.map((index) => shown[index][key]);
        const side = (key) => indices.map((index) => {
          const row = shown[index];
          return row[key] === null ? 0 : Math.abs(row[key] - row.change);
        });
        return {
          type: "scatter", mode: "markers", name: kind, x: of("change"), y: indices.map((index) => heights[index]),
          marker: { color: kindColour(kind), size: 9, symbol: KIND_SYMBOLS[kind] || "circle" },
          error_x: { type: "data", symmetric: false, array: side("change_high"), arrayminus: side("change_low"),
            color: kindColour(kind), thickness: 1.5, width: 3 },
          text: indices.map((index) => {
            const row = shown[index];
            const interval = row.change_low === null || row.change_high === null ? ""
              : ` (${signed(row.change_low)} to ${signed(row.change_high)})`;
            return `${plain(row.name)}<br>${signed(row.change)}${interval}, ${plain(row.kind)}`;
          }),
          hovertemplate: "%{text}<extra></extra>",
        };
      });
      return {
        traces, legend: kinds.length > 1,
        xaxis: { tickformat: "+.1%", zeroline: false },
        // A gate of 5% allows 5% more time per item.
        shapes: [line(0, css("muted"), "solid")].concat(gate === null ? [] : [line(1 / (1 + gate) - 1, css("regressed"), "dash")]),
      };
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
    Array.from(panels.children).forEach((box) => { box.hidden = true; });
    let left = 0;
    section.hidden = false; // what is hidden has no width to draw in
    const found = [];
    for (const [name, all] of functions) {
      const series = Array.from(all).filter(([, points]) => new Set(points.map((point) => point.batch_size)).size > 1);
      series.sort(([a], [b]) => a.localeCompare(b));
      left += Math.max(0, series.length - MOST_SERIES);
      if (series.length) found.push([panelOf(panels, name, series[0][1][0].panel), series.slice(0, MOST_SERIES)]);
    }
    // All panels have their places before one is drawn in the width that it has.
    found.forEach(([box]) => { box.hidden = false; });
    found.forEach(([box, series]) => panel(box, series));
    section.hidden = Array.from(panels.children).every((box) => box.hidden);
    section.querySelector(".note").textContent = moreLines(left);
  }

  // The chart of a bench function, made when it is first needed and used again after that: Plotly
  // may still have work to do on one that it drew a moment ago.
  function panelOf(panels, name, title) {
    const known = Array.from(panels.children).find((box) => box.dataset.name === name);
    if (known) return known;
    const box = document.createElement("div");
    const heading = document.createElement("h3");
    const plot = document.createElement("div");
    box.dataset.name = name;
    heading.textContent = title;
    plot.className = "plot";
    box.append(heading, plot);
    panels.append(box);
    return box;
  }

  function panel(box, series) {
    const shown = apart(series.map(([label]) => label), 34);
    const traces = series.map(([label, points], index) => {
      points.sort((a, b) => a.batch_size - b.batch_size);
      return {
        type: "scatter", mode: "lines+markers", name: shown[index],
        x: points.map((point) => point.batch_size), y: points.map((point) => point.throughput),
        error_y: { type: "data", symmetric: false, thickness: 1, width: 2,
          array: points.map((point) => Math.max(0, (point.high || point.throughput) - point.throughput)),
          arrayminus: points.map((point) => Math.max(0, point.throughput - (point.low || point.throughput))) },
        line: seriesLine(index), marker: { symbol: SYMBOLS[index % SYMBOLS.length], size: 7 },
        hovertemplate: `${plain(label)}<br>batch size %{x}: %{y:,.4g} ${plain(points[0].unit)}<extra></extra>`,
      };
    });
    const ticks = Array.from(new Set(traces.flatMap((trace) => trace.x))).sort((a, b) => a - b);
    const said = `Throughput of ${box.dataset.name} against batch size; the table has the numbers`;
    curves(box.querySelector(".plot"), said, traces, series[0][1][0].unit,
      { type: "log", tickvals: ticks, ticktext: ticks.map(String), title: { text: "batch size" } });
  }

  // Draw lines of several series, whose values have one logarithmic axis.
  function curves(plot, said, traces, unit, xaxis) {
    picture(plot, said, traces, {
      height: 330 + 18 * traces.length, showlegend: true,
      legend: { orientation: "h", x: 0, y: -0.2, yanchor: "top" }, xaxis,
      yaxis: Object.assign(logTicks(traces.flatMap((trace) => trace.y)), { title: { text: plain(unit) } }),
    });
  }

  function latency() {
    const chosen = rows.filter((row) => row.p50_ms !== null);
    byCase("latency", chosen, (shown, heights) => {
      const spans = { x: [], y: [] };
      shown.forEach((row, index) => {
        spans.x.push(row.p50_ms, row.p99_ms, null);
        spans.y.push(heights[index], heights[index], null);
      });
      const traces = [{
        type: "scatter", mode: "lines", x: spans.x, y: spans.y, hoverinfo: "skip", showlegend: false,
        line: { color: css("line"), width: 5 },
      }];
      ["p50", "p90", "p99"].forEach((name, index) => traces.push({
        type: "scatter", mode: "markers", name, y: heights, x: shown.map((row) => row[`${name}_ms`]),
        marker: { color: colour(index), size: 9, symbol: ["circle", "diamond", "line-ns-open"][index], line: { width: index === 2 ? 3 : 0 } },
        text: shown.map((row) => plain(row.name)),
        hovertemplate: `%{text}<br>${name} %{x:.4g} ms<extra></extra>`,
      }));
      const ticks = logTicks(shown.flatMap((row) => [row.p50_ms, row.p99_ms]));
      return { traces, legend: true, xaxis: Object.assign(ticks, { zeroline: false }) };
    });
  }

  // Requests come when they are due, at several rates: what a search has tried, and the case's own run.
  function load() {
    const section = document.getElementById("load");
    const chosen = rows.filter((row) => row.load.length > 0);
    section.hidden = chosen.length === 0;
    if (section.hidden) return;
    const shown = chosen.slice(0, MOST_SERIES);
    const names = apart(shown.map((row) => row.name), 34);
    const traces = shown.map((row, index) => ({
      type: "scatter", mode: "lines+markers", name: names[index],
      x: row.load.map((point) => point.target_qps), y: row.load.map((point) => point.p99_ms),
      line: seriesLine(index),
      marker: { size: 8, symbol: row.load.map((point) => (point.held ? SYMBOLS[0] : "x")) },
      text: row.load.map((point) => `${plain(row.name)}<br>${point.target_qps.toPrecision(3)} a second: `
        + `p50 ${point.p50_ms.toPrecision(3)} ms, p99 ${point.p99_ms.toPrecision(3)} ms${point.held ? "" : ", not kept"}`),
      hovertemplate: "%{text}<extra></extra>",
    }));
    const said = `Latency of ${cases(shown)} against the requests a second`;
    curves(section.querySelector(".plot"), said, traces, "p99 ms",
      { rangemode: "tozero", title: { text: "requests a second" } });
    const left = chosen.length - shown.length;
    section.querySelector(".note").textContent = moreLines(left);
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
    const traces = Array.from(roofs.values()).map((row) => ({
      type: "scatter", mode: "lines", hoverinfo: "skip", name: `${giga(row.peak_flops)}FLOP/s, ${giga(row.peak_bytes)}B/s`,
      x: [low, Math.min(Math.max(bend(row), low), high), high],
      y: [low, Math.min(Math.max(bend(row), low), high), high].map((x) => Math.min(row.peak_flops, x * row.peak_bytes)),
      line: { color: css("muted"), width: 1.5 },
    }));
    const kinds = Array.from(new Set(chosen.map((row) => `${row.framework}, ${row.mode || "inference"}`)));
    kinds.forEach((kind, index) => {
      const own = chosen.filter((row) => `${row.framework}, ${row.mode || "inference"}` === kind);
      traces.push({
        type: "scatter", mode: "markers", name: plain(kind), x: own.map(intensity), y: own.map((row) => row.achieved_flops),
        marker: { color: colour(index), size: 8, symbol: SYMBOLS[index % SYMBOLS.length] },
        text: own.map((row) => `${plain(row.name)}<br>${giga(row.achieved_flops)}FLOP/s at ${intensity(row).toPrecision(3)} FLOP/B`),
        hovertemplate: "%{text}<extra></extra>",
      });
    });
    const rates = traces.flatMap((trace) => trace.y);
    const flops = logTicks(rates);
    picture(section.querySelector(".plot"), `Roofline of ${cases(chosen)}`, traces, {
      height: 420 + (narrow() ? 20 * traces.length : 0), showlegend: true,
      legend: { orientation: "h", x: 0, y: narrow() ? -0.35 : -0.2, yanchor: "top" },
      xaxis: Object.assign(logTicks([low, high]), { title: { text: "FLOP for each byte of weights" }, zeroline: false }),
      yaxis: Object.assign(flops, { ticktext: flops.tickvals.map(giga), title: { text: "FLOP/s" }, zeroline: false }),
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
    one();
  }

  function one() {
    const detail = details.get(choice.value);
    if (!detail) return;
    const row = byId.get(choice.value);
    const traces = [];
    detail.processes.forEach((process, index) => {
      const name = index === 0 ? "this run" : `process ${index + 1}`;
      if (process.disturbed.length) {
        traces.push({
          type: "scatter", mode: "markers", name: "disturbed by other programs",
          x: process.disturbed.map(([round]) => round + 1), y: process.disturbed.map(([, rate]) => rate),
          marker: { size: 6, symbol: "x-thin-open", color: css("muted"), line: { width: 1.5 } },
          hovertemplate: `round %{x}, disturbed: %{y:,.4g} ${plain(row.unit)}<extra></extra>`,
        });
      }
      const common = {
        type: "scatter", mode: process.rates.length > 1 ? "lines+markers" : "markers", name, legendgroup: name,
        line: { color: colour(index), width: 1 }, marker: { size: 5, symbol: SYMBOLS[index % SYMBOLS.length] },
      };
      traces.push(Object.assign({}, common, {
        y: process.rates, hovertemplate: `${name}, round %{x}: %{y:,.4g} ${plain(row.unit)}<extra></extra>`,
        x: process.at.map((round) => round + 1),
      }));
      traces.push(Object.assign({}, common, {
        y: process.canaries_ms, yaxis: "y2", showlegend: false, hovertemplate: `${name}, canary %{y:.4g} ms<extra></extra>`,
        x: process.canaries_ms.map((_, round) => 1 + (process.at[round] ?? round * process.every)),
      }));
    });
    // What they are compared with, behind them and in grey.
    detail.before.forEach((process, index) => traces.unshift({
      type: "scatter", mode: process.rates.length > 1 ? "lines+markers" : "markers", name: "baseline", legendgroup: "baseline",
      showlegend: index === 0, x: process.at.map((round) => round + 1), y: process.rates,
      line: { color: css("line"), width: 1 }, marker: { size: 4, color: css("muted"), opacity: 0.6 },
      hovertemplate: `baseline, process ${index + 1}, round %{x}: %{y:,.4g} ${plain(row.unit)}<extra></extra>`,
    }));
    picture(document.getElementById("rounds"), `Rounds and canaries of ${row.name}`, traces, {
      height: 460 + (narrow() ? 15 * detail.processes.length : 0), // a phone has two names in a line
      showlegend: traces.length > 2, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      xaxis: { title: { text: "round" }, anchor: "y2", zeroline: false },
      yaxis: { title: { text: plain(row.unit) }, domain: [0.4, 1], zeroline: false },
      yaxis2: { title: { text: "canary, ms" }, domain: [0, 0.3], zeroline: false },
    });
    document.getElementById("rounds-note").textContent = said(detail);
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

  function said(detail) {
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
    const digits = (value) => (value === null ? "" : fourDigits(value));
    const all = detail.processes.concat(detail.before);
    all.forEach((process, index) => {
      const line = body.insertRow();
      const before = index >= detail.processes.length;
      const speed = index === 0 || before ? "" : signed(process.speed - 1);
      const compiled = process.compile === "reused" ? "reused" : digits(process.compile_seconds);
      const memory = process.memory_bytes === null ? "" : Math.round(process.memory_bytes / 2 ** 20).toLocaleString("en-US");
      const number = before ? index - detail.processes.length + 1 : index + 1;
      const kind = before ? "baseline" : process.fresh ? "fresh" : "this run";
      const name = `${number}, ${kind}${process.clean ? "" : ", disturbed"}`;
      [name, `${digits(process.throughput)} ${row.unit}`, speed, String(process.rounds), digits(process.p99_ms), compiled, memory]
        .forEach((text, column) => {
          const cell = line.insertCell();
          cell.textContent = text;
          if (column) cell.className = "n";
        });
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

unpackPlotly().then(drawCharts, () => {
  document.getElementById("no-charts").hidden = false;
}).finally(() => {  // The table works without charts too.
  report.start();
  document.documentElement.dataset.ready = "yes";
});
