"use strict";
// What all charts share: the page's own colours, and widths of a phone, a screen and paper.
const plotting = (() => {
  let printing = false;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const phone = window.matchMedia("(max-width: 40rem)"); // as style.css has it
  const narrow = () => !printing && phone.matches;
  const percent = (value) => `${(100 * value).toFixed(1)}%`;
  const signed = (value) => `${value < 0 ? "" : "+"}${percent(value)}`;
  // Plotly reads a few HTML tags and entities in its texts.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function layout(more) {
    const axis = {
      gridcolor: css("line"), linecolor: css("line"), zerolinecolor: css("muted"),
      tickcolor: css("line"), automargin: true, fixedrange: true,
    };
    const axes = {};
    for (const name of ["xaxis", "yaxis", "xaxis2", "yaxis2"]) {
      if (more[name]) axes[name] = Object.assign({}, axis, more[name]);
    }
    return Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: narrow() || printing ? 11 : 12, color: css("ink") },
      margin: { l: 8, r: 12, t: 8, b: 8 }, hovermode: "closest", dragmode: false,
      hoverlabel: { bgcolor: css("panel"), bordercolor: css("line"), font: { color: css("ink") } },
      showlegend: false, autosize: !printing, width: printing ? 660 : undefined,
    }, more, axes);
  }

  function draw(target, traces, more) {
    const config = { responsive: true, displayModeBar: false };
    return Plotly.react(target, traces, layout(more), config);
  }

  // Draw again in the dark, on a phone that is turned, and for the printer.
  function whenItChanges(redraw) {
    function print(now) {
      printing = now;
      document.documentElement.classList.toggle("printing", now);
      redraw();
    }

    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    phone.addEventListener("change", redraw);
    window.addEventListener("beforeprint", () => print(true));
    window.addEventListener("afterprint", () => print(false));
  }

  return { css, draw, narrow, plain, signed, whenItChanges };
})();
