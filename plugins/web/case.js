// The chart of each trend of a case: its runs, its levels, and what was decided.
(() => {
  const { colour, draw, signed } = plotting;
  // A revision names its run if it has no other.
  const labelOf = (point, _, points) => (
    point.revision && points.filter((one) => one.revision === point.revision).length === 1 ? point.revision : point.when);
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

  function textOf(point, unit) {
    const parts = [`${point.when} ${point.revision}`, `${point.rate} ${unit}`];
    if (point.interval) parts.push(`95%: ${point.interval}`);
    if (point.change) parts.push(`level ${point.change} (${point.sure})`);
    if (point.promoted) parts.push(`baseline ${point.promoted}`);
    if (point.accepted) parts.push(point.accepted);
    return parts.join("\n");
  }

  function chart({ anchor, points, levels, unit }) {
    const numbers = points.map((_, index) => index);
    const marked = numbers.filter((index) => points[index].promoted || points[index].accepted);
    const traces = [
      { name: "level", line: { colour: colour("muted"), width: 2 }, ...lines(levels, points.length) },
      { name: "run", x: numbers, y: points.map((point) => point.throughput),
        y_low: points.map((point) => point.low), y_high: points.map((point) => point.high),
        marker: { colour: colour("accent"), size: 7 }, text: points.map((point) => textOf(point, unit)) },
    ];
    if (marked.length) {
      traces.push({ name: "became the baseline, or was accepted", x: marked,
        y: marked.map((index) => points[index].throughput), marker: { colour: colour("unsure"), size: 15, symbol: "ring" } });
    }
    draw(document.getElementById(anchor).querySelector(".plot"), traces, {
      height: 360, legend: true,
      marks: levels.slice(1).map(([start, rate], index) => ({
        x: start - 0.5, colour: colour("line"), dash: "2 4", text: signed(rate / levels[index][1] - 1),
        ink: colour(rate < levels[index][1] ? "regressed" : "improved") })),
      x: { ticks: numbers, labels: points.map(labelOf), range: [-0.6, points.length - 0.4], grid: false },
      y: { title: unit },
    });
  }

  const all = () => trends.forEach(chart);
  plotting.whenItChanges(all);
  all();
  document.documentElement.dataset.ready = "yes";
})();
