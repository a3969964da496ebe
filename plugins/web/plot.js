"use strict";
// Draws charts as SVG: points, lines and intervals on linear or logarithmic axes.
//
// A trace has the lists x and y, and any of: name, line {colour, width, dash}, marker {colour, size,
// symbol}, x_low and x_high, y_low and y_high (an interval of each point), text (of each point, for
// the pointer), lower (whether it is drawn in the lower panel), listed (false: not in the legend).
// A null in x or y ends a line. An axis has any of: log, ticks, labels, range, title, format, grid.
const plotting = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const PAPER_WIDTH = 660;
  const GAP = 8; // between two labels of an axis
  const REACH = 24; // how far the pointer may be from a point
  const phone = window.matchMedia("(max-width: 40rem)"); // as in style.css
  const pen = document.createElement("canvas").getContext("2d");
  const COLOURS = 8; // --series-1 to --series-8
  let printing = false;

  const narrow = () => !printing && phone.matches;
  const colour = (name) => `var(--${name})`;
  // Series that share a colour differ in their lines.
  const seriesLine = (index) => ({
    colour: colour(`series-${1 + (index % COLOURS)}`), width: 2, dash: index < COLOURS ? "" : "2 4",
  });
  const signed = (value) => `${value < 0 ? "" : "+"}${(100 * value).toFixed(1)}%`;
  const digits = (value, least = 1, most = 4) => value.toLocaleString("en-US",
    { maximumSignificantDigits: most, minimumSignificantDigits: least });

  // Amounts and times as `rate_text` and `time_text` write them.
  function amount(value, least = 1) {
    for (const [prefix, size] of [["G", 1e9], ["M", 1e6]]) {
      if (Math.abs(value) >= size) return `${digits(value / size)} ${prefix}`;
    }
    return digits(value, least);
  }

  function duration(milliseconds, most = 3) {
    if (milliseconds === 0) return "0"; // the other labels of its axis have the unit
    const units = [["s", 1e3], ["ms", 1], ["µs", 1e-3]];
    const far = Math.abs(milliseconds);
    const [unit, size] = units.find(([, least]) => far >= 0.9995 * least) || ["ns", 1e-6];
    return `${digits(milliseconds / size, 1, far >= 999500 ? 4 : most)} ${unit}`;
  }

  const SYMBOLS = {
    circle: (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
    square: (r) => `M${-r},${-r}H${r}V${r}H${-r}Z`,
    diamond: (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0Z`,
    up: (r) => `M0,${-1.2 * r}L${1.1 * r},${0.8 * r}H${-1.1 * r}Z`,
    left: (r) => `M${-1.2 * r},0L${0.8 * r},${-1.1 * r}V${1.1 * r}Z`,
    right: (r) => `M${1.2 * r},0L${-0.8 * r},${-1.1 * r}V${1.1 * r}Z`,
    cross: (r) => `M${-r},${-r}L${r},${r}M${-r},${r}L${r},${-r}`,
    plus: (r) => `M0,${-1.2 * r}V${1.2 * r}M${-1.2 * r},0H${1.2 * r}`,
    bar: (r) => `M0,${-1.2 * r}V${1.2 * r}`,
    ring: (r) => SYMBOLS.circle(r),
  };
  const OUTLINES = ["cross", "plus", "bar", "ring"];

  function element(parent, name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }

  const fontSize = () => (narrow() || printing ? 11 : 12);
  function textWidth(text) {
    pen.font = `${fontSize()}px system-ui, sans-serif`;
    return pen.measureText(text).width;
  }

  // Multiples of 1, 2, 2.5 or 5 from low to high: between half of `most` and `most`.
  function evenTicks(low, high, most) {
    const least = (high - low) / most;
    const unit = 10 ** Math.floor(Math.log10(least));
    const step = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= 0.999 * least);
    const first = Math.ceil(low / step - 1e-9);
    const count = Math.floor(high / step + 1e-9) - first + 1;
    return Array.from({ length: count }, (_, index) => Number(((first + index) * step).toPrecision(12)));
  }

  // 1, 2, 5, 10 and so on, or powers of ten if these are too many; values that lie close together
  // have multiples of one step.
  function logTicks(low, high, most) {
    const powers = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      powers.push(Number(`1e${power}`));
    }
    const within = (ticks) => ticks.filter((tick) => tick >= low && tick <= high);
    const all = within(powers.flatMap((power) => [power, 2 * power, 5 * power]));
    if (all.length < 3) return evenTicks(low, high, Math.max(6, Math.min(most, 8)));
    const few = within(powers);
    if (all.length <= most || few.length < 2) return all;
    const every = Math.ceil(few.length / most);
    return few.filter((_, index) => index % every === 0);
  }

  // The ends, the ticks and the labels of an axis that is to show some values.
  function scaled(axis, values, most) {
    const known = values.filter((value) => Number.isFinite(value) && (!axis.log || value > 0));
    let [low, high] = axis.range || [Math.min(...known), Math.max(...known)];
    if (!axis.range && axis.log) {
      const room = Math.max((high / low) ** 0.06, 1.025);
      [low, high] = [low / room, high * room];
    } else if (!axis.range) {
      const room = Math.max(0.06 * (high - low), 0.005 * Math.max(Math.abs(low), Math.abs(high)), 1e-12);
      [low, high] = [low - (axis.zero && low >= 0 ? low : room), high + room];
    }
    const ticks = axis.ticks || (axis.log ? logTicks : evenTicks)(low, high, most);
    const labels = axis.labels || ticks.map(axis.format || ((tick) => amount(tick)));
    const along = axis.log ? Math.log : Number;
    const share = (value) => (along(value) - along(low)) / (along(high) - along(low));
    return { ...axis, low, high, ticks, labels, share };
  }

  function drawTrace(area, trace, place, points) {
    const group = element(area, "g", { class: "trace" });
    const at = trace.x.map((x, index) => (
      x === null || trace.y[index] === null ? null : [place.x(x), place.y(trace.y[index])]));
    if (trace.line) {
      const path = at.map((point, index) => (
        point ? `${index && at[index - 1] ? "L" : "M"}${point.map((one) => one.toFixed(1))}` : "")).join("");
      element(group, "path", { class: "line", d: path, fill: "none", stroke: trace.line.colour,
        "stroke-width": trace.line.width, "stroke-dasharray": trace.line.dash || "none" });
    }
    if (!trace.marker) return;
    const { colour: fill, size, symbol = "circle" } = trace.marker;
    at.forEach((point, index) => {
      if (!point) return;
      const [x, y] = point;
      const bounds = (key, along) => [`${key}_low`, `${key}_high`]
        .map((side) => (trace[side] ? trace[side][index] : null)).filter((value) => value !== null).map(along);
      const [left, right] = bounds("x", place.x);
      const [bottom, top] = bounds("y", place.y);
      const path = (right === undefined ? "" : `M${left},${y - 3}v6m0,-3H${right}m0,-3v6`)
        + (top === undefined ? "" : `M${x - 2},${bottom}h4m-2,0V${top}m-2,0h4`);
      if (path) element(group, "path", { class: "interval", d: path, fill: "none", stroke: fill, "stroke-width": 1.25 });
      const kind = Array.isArray(symbol) ? symbol[index] : symbol;
      mark(group, kind, size, fill).setAttribute("transform", `translate(${x.toFixed(1)},${y.toFixed(1)})`);
      if (trace.text) points.push({ x, y, text: trace.text[index] });
    });
  }

  function mark(parent, kind, size, fill) {
    const outlined = OUTLINES.includes(kind);
    return element(parent, "path", { class: "point", d: SYMBOLS[kind](size / 2),
      fill: outlined ? "none" : fill, stroke: outlined ? fill : "none", "stroke-width": 2 });
  }

  function legend(target, traces) {
    const list = document.createElement("ul");
    list.className = "legend";
    list.setAttribute("role", "presentation");
    for (const trace of traces) {
      const item = document.createElement("li");
      const key = element(item, "svg", { width: 26, height: 12 });
      if (trace.line) {
        element(key, "path", { d: "M1,6H25", stroke: trace.line.colour, "stroke-width": trace.line.width,
          "stroke-dasharray": trace.line.dash || "none" });
      }
      if (trace.marker) {
        const { symbol = "circle" } = trace.marker;
        mark(key, Array.isArray(symbol) ? symbol[0] : symbol, 8, trace.marker.colour).setAttribute("transform", "translate(13,6)");
      }
      item.append(trace.name);
      list.append(item);
    }
    target.append(list);
  }

  // Show the text of the point that is next to the pointer.
  function follow(target, points) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    target.append(tip);
    const show = (event) => {
      const box = target.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      const far = (point) => Math.hypot(point.x - x, point.y - y);
      const next = points.reduce((best, point) => (best && far(best) <= far(point) ? best : point), null);
      tip.hidden = !next || far(next) > REACH;
      if (tip.hidden) return;
      tip.textContent = next.text;
      tip.style.left = `${Math.max(0, Math.min(next.x + 10, box.width - tip.offsetWidth))}px`;
      tip.style.top = `${next.y > tip.offsetHeight + 10 ? next.y - tip.offsetHeight - 8 : next.y + 12}px`;
    };
    target.onpointermove = show;
    target.onpointerdown = show;
    target.onpointerleave = () => { tip.hidden = true; };
  }

  // Draw traces in `target`; `more` has the height, the axes x, y and lower, whether x is on `top`,
  // whether there is a `legend`, and `marks`: upright lines {x, colour, dash, text, ink}.
  function draw(target, traces, more) {
    const height = more.height;
    const width = printing ? PAPER_WIDTH : target.clientWidth;
    const marks = more.marks || [];
    const top = (more.top ? 26 : 10) + (marks.some((one) => one.text) ? 16 : 0);
    const bottom = height - (more.top ? 8 : 26) - (more.x.title ? 18 : 0);
    const upper = traces.filter((trace) => !trace.lower);
    const split = more.lower ? top + 0.62 * (bottom - top) : bottom;
    const panels = [[more.y, upper, top, split]];
    if (more.lower) panels.push([more.lower, traces.filter((trace) => trace.lower), split + 24, bottom]);
    const shown = panels.map(([axis, own, from, to]) => {
      const values = own.flatMap((trace) => [...trace.y, ...(trace.y_low || []), ...(trace.y_high || [])]);
      return { axis: scaled(axis, values.filter((value) => value !== null), (to - from) / 36), own, from, to };
    });
    const labels = shown.flatMap(({ axis }) => axis.labels);
    const left = 10 + Math.max(0, ...labels.map(textWidth)) + (shown.some(({ axis }) => axis.title) ? 20 : 0);
    const right = width - 14;
    const values = [more.x.ticks || [], ...traces.flatMap((trace) => [trace.x, trace.x_low || [], trace.x_high || []])];
    const x = scaled(more.x, values.flat().filter((value) => value !== null), Math.max(4, (right - left) / 64));
    const along = (value) => left + x.share(value) * (right - left);

    target.replaceChildren();
    target.chart = { traces, x, y: shown[0].axis, marks, legend: Boolean(more.legend) };
    const svg = element(target, "svg", { width, height, "font-size": fontSize(), fill: colour("ink") });
    const line = (path, stroke, dash = "none") => element(svg, "path",
      { d: path, stroke, "stroke-dasharray": dash, fill: "none" });
    let free = -Infinity;
    x.ticks.forEach((tick, index) => {
      if (!(tick >= x.low && tick <= x.high)) return;
      const at = along(tick);
      shown.forEach(({ from, to }) => { if (x.grid !== false) line(`M${at},${from}V${to}`, colour("line")); });
      const half = textWidth(x.labels[index]) / 2;
      const middle = Math.max(half, Math.min(at, width - half));
      if (middle - half < free + GAP) return;
      free = middle + half;
      element(svg, "text", { class: "xtick", x: middle, y: more.top ? top - 10 : bottom + 17, "text-anchor": "middle" }, x.labels[index]);
    });
    if (x.title) element(svg, "text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, x.title);
    const points = [];
    shown.forEach(({ axis, own, from, to }) => {
      const up = (value) => to - axis.share(value) * (to - from);
      axis.ticks.forEach((tick, index) => {
        if (!(tick >= axis.low && tick <= axis.high)) return;
        if (axis.grid !== false) line(`M${left},${up(tick)}H${right}`, colour("line"));
        element(svg, "text", { class: "ytick", x: left - 8, y: up(tick) + 4, "text-anchor": "end" }, axis.labels[index]);
      });
      if (axis.title) {
        const turned = `translate(12,${(from + to) / 2}) rotate(-90)`;
        element(svg, "text", { transform: turned, "text-anchor": "middle" }, axis.title);
      }
      if (axis === shown[0].axis) {
        marks.forEach((one) => {
          line(`M${along(one.x)},${from}V${to}`, one.colour, one.dash);
          if (one.text) element(svg, "text", { x: along(one.x), y: from - 6, "text-anchor": "middle", fill: one.ink }, one.text);
        });
      }
      own.forEach((trace) => drawTrace(svg, trace, { x: along, y: up }, points));
    });
    if (more.legend) legend(target, traces.filter((trace) => trace.listed !== false));
    follow(target, points);
  }

  // Draw again in another width, and for the printer.
  function whenItChanges(redraw) {
    let width = window.innerWidth;
    function print(now) {
      printing = now;
      document.documentElement.classList.toggle("printing", now);
      redraw();
    }

    window.addEventListener("resize", () => {
      if (window.innerWidth !== width && !printing) redraw();
      width = window.innerWidth;
    });
    window.addEventListener("beforeprint", () => print(true));
    window.addEventListener("afterprint", () => print(false));
  }

  return { amount, colour, digits, draw, duration, narrow, seriesLine, signed, whenItChanges };
})();
