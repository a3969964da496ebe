// In place of MkDocs' own search, whose worker and JSON a browser does not load from the disk.
document.addEventListener("DOMContentLoaded", function () {
  var input = document.getElementById("mkdocs-search-query");
  var output = document.getElementById("mkdocs-search-results");
  var loading = false;

  function count(text, word) {
    return text.toLowerCase().split(word).length - 1;
  }

  function score(section, words) {
    var total = 0;
    for (var i = 0; i < words.length; i++) {
      var found = 20 * count(section.title, words[i]) + Math.min(count(section.text, words[i]), 10);
      if (!found) return 0;
      total += found;
    }
    return total;
  }

  function excerpt(text, word) {
    var start = Math.max(0, text.toLowerCase().indexOf(word) - 60);
    return (start ? "…" : "") + text.slice(start, start + 200) + "…";
  }

  function show() {
    output.textContent = "";
    var words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length || !window.searchIndex) return;
    var scored = searchIndex.docs.map(function (section) {
      return { section: section, score: score(section, words) };
    });
    var found = scored.filter(function (one) { return one.score; });
    found.sort(function (a, b) { return b.score - a.score; });
    found.slice(0, 20).forEach(function (one) {
      var article = document.createElement("article");
      var link = document.createElement("a");
      link.href = base_url.replace(/\/?$/, "/") + one.section.location;
      link.textContent = one.section.title;
      var text = document.createElement("p");
      text.textContent = excerpt(one.section.text, words[0]);
      article.append(link, text);
      output.append(article);
    });
    if (!found.length) output.textContent = "Nothing found.";
  }

  function load() {
    if (loading) return;
    loading = true;
    var script = document.createElement("script");
    script.src = base_url.replace(/\/?$/, "/") + "search/index.js";
    script.onload = show;
    document.head.append(script);
  }

  input.addEventListener("focus", load);
  input.addEventListener("input", show);
  input.form.addEventListener("submit", function (event) { event.preventDefault(); });
});
