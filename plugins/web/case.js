// The chart of each trend of a case: its runs, its levels, and what was decided.
(() => {
  const { css, draw, narrow, plain, signed } = plotting;
  const trends = JSON.parse(document.getElementById("data").textContent);

  function lines(levels, count) {
    const found = { x: [], y: [] };
    levels.forEach(([start, rate], index) => {
      const end = index + 1 < levels.length ? levels[index + 1][0] - 1 : count - 1;
      found.x.push(start - 0.4, end + 0.4, null);
      found.y.push(rate, rate, null);
    });
    return found;
  }

  function said(point, unit) {
    const parts = [`${point.when} ${point.revision}`, `${point.rate} ${unit}`];
    if (point.interval) parts.push(`95%: ${point.interval}`);
    if (point.change) parts.push(`level ${point.change}`);
    if (point.promoted) parts.push(`baseline ${point.promoted}`);
    if (point.accepted) parts.push(point.accepted);
    return parts.map(plain).join("<br>");
  }

  function chart(trend) {
    const { points, levels, unit } = trend;
    const numbers = points.map((_, index) => index);
    const side = (key, sign) => points.map((point) =>
      point[key] === null ? 0 : Math.max(0, sign * (point[key] - point.throughput)));
    const marked = numbers.filter((index) => points[index].promoted || points[index].accepted);
    const every = Math.ceil(points.length / (narrow() ? 5 : 14));
    const shown = numbers.filter((index) => index % every === 0);
    const traces = [
      Object.assign({ type: "scatter", mode: "lines", name: "level", hoverinfo: "skip",
        line: { color: css("muted"), width: 2 } }, lines(levels, points.length)),
      { type: "scatter", mode: "markers", name: "run", x: numbers, y: points.map((point) => point.throughput),
        error_y: { type: "data", symmetric: false, array: side("high", 1), arrayminus: side("low", -1),
          color: css("accent"), thickness: 1, width: 2 },
        marker: { color: css("accent"), size: 7 },
        text: points.map((point) => said(point, unit)), hovertemplate: "%{text}<extra></extra>" },
      { type: "scatter", mode: "markers", name: "became the baseline, or was accepted", hoverinfo: "skip",
        x: marked, y: marked.map((index) => points[index].throughput),
        marker: { color: css("unsure"), size: 15, symbol: "circle-open", line: { color: css("unsure"), width: 2 } } },
    ];
    const steps = levels.slice(1).map(([start, rate], index) => ({
      x: start - 0.5, y: 1, yref: "paper", yanchor: "bottom", showarrow: false,
      text: signed(rate / levels[index][1] - 1), font: { color: css(rate < levels[index][1] ? "regressed" : "improved") },
    }));
    return draw(document.getElementById(trend.anchor).querySelector(".plot"), traces, {
      height: 360, margin: { l: 8, r: 12, t: 28, b: 8 }, showlegend: true,
      legend: { orientation: "h", x: 0, y: -0.25, yanchor: "top" }, annotations: steps,
      shapes: levels.slice(1).map(([start]) => ({
        type: "line", x0: start - 0.5, x1: start - 0.5, yref: "paper", y0: 0, y1: 1,
        line: { color: css("line"), width: 1, dash: "dot" } })),
      xaxis: { tickvals: shown, ticktext: shown.map((index) => plain(points[index].revision || points[index].when)), zeroline: false },
      yaxis: { title: { text: plain(unit) }, rangemode: "normal", zeroline: false },
    });
  }

  const all = () => trends.forEach(chart);
  plotting.whenItChanges(all);
  all();
  document.documentElement.dataset.ready = "yes";
})();
