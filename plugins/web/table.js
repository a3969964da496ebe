"use strict";
// The table's filter and order. Both live in the address, so that a view can be linked to:
// #q=resnet50&kind=regressed&sort=change
const report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const body = document.querySelector("#table tbody");
  const lines = Array.from(body.rows);
  const selects = Array.from(document.querySelectorAll("#controls select"));
  const search = document.getElementById("q");
  const byId = new Map(data.rows.map((row) => [row.id, row]));
  const listeners = [];
  let state = new URLSearchParams(location.hash.slice(1));
  let searching = false; // the newest step of the history is a search, which may go on

  function matches(row) {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = `${row.function} ${row.name}`.toLowerCase();
    return words.every((word) => text.includes(word)) &&
      selects.every((select) => !select.value || String(row[select.name]) === select.value);
  }

  function order() {
    const [key, direction] = (state.get("sort") || "").split(":");
    const heads = Array.from(document.querySelectorAll("#table th"));
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    const column = heads.findIndex((head) => head.dataset.key === key);
    if (column < 0) return lines;
    heads[column].setAttribute("aria-sort", direction === "down" ? "descending" : "ascending");
    const sign = direction === "down" ? -1 : 1;
    const value = (line) => line.cells[column].dataset.value;
    return lines.slice().sort((left, right) => {
      const [a, b] = [value(left), value(right)];
      if (a === "" || b === "") return (a === "") - (b === ""); // what has no value comes last
      const numeric = Number(a) - Number(b);
      return sign * (Number.isNaN(numeric) ? a.localeCompare(b) : numeric);
    });
  }

  function show() {
    const rows = [];
    for (const line of order()) {
      const row = data.rows[line.dataset.row];
      line.hidden = !matches(row);
      if (!line.hidden) rows.push(row);
      body.append(line);
    }
    const shown = document.getElementById("shown");
    shown.textContent = `${rows.length} of ${lines.length} ${shown.dataset.what}`;
    listeners.forEach((listener) => listener(rows));
  }

  function restore() {
    searching = false;
    state = new URLSearchParams(location.hash.slice(1));
    search.value = state.get("q") || "";
    selects.forEach((select) => { select.value = state.get(select.name) || ""; });
    selects.filter((select) => select.selectedIndex < 0).forEach((select) => { select.value = ""; });
    show();
  }

  // Back undoes what was chosen last; a search is one step, however many letters it has.
  function keep(name, value) {
    if (value) state.set(name, value);
    else state.delete(name);
    const text = state.toString();
    const address = text ? `#${text}` : location.pathname + location.search;
    if (searching && name === "q") history.replaceState(null, "", address);
    else history.pushState(null, "", address);
    searching = name === "q";
  }

  function start() {
    document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
    search.addEventListener("input", () => { keep("q", search.value); show(); });
    selects.forEach((select) => select.addEventListener("change", () => {
      keep(select.name, select.value);
      show();
    }));
    document.querySelectorAll("#table th button").forEach((button) => {
      const key = button.parentElement.dataset.key;
      button.addEventListener("click", () => {
        keep("sort", state.get("sort") === `${key}:up` ? `${key}:down` : `${key}:up`);
        show();
      });
    });
    window.addEventListener("hashchange", () => {
      if (location.hash.includes("=") || location.hash === "") restore();
    });
    restore();
  }

  return { data, byId, listeners, start, keep, get: (name) => state.get(name) };
})();
