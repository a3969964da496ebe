"""Every module that reads a file or a text whole is listed with its reason.

fixtures/case/untrusted.py opens files of others. This test finds modules that read in another way.
Each needs a line below if its files are not from others or if it has its own limits.
"""

from __future__ import annotations

import ast
from typing import Dict

import pytest

from tests.support.harness import ROOT

#: Calls that read a whole file or text, whatever its size or content.
METHODS = {"read_text", "read_bytes"}
FUNCTIONS = {
    *("json.load", "json.loads", "yaml.compose", "yaml.safe_load", "yaml.load", "np.load"),
    *("torch.load", "pickle.load", "pickle.loads", "Image.open", "zipfile.ZipFile"),
    *("tarfile.open", "csv.reader"),
}

#: Module -> why it may read as it does.
READERS: Dict[str, str] = {
    # May be written by others; the reader has limits.
    "fixtures/case/untrusted.py": "the bounded reader itself",
    "fixtures/case/yaml_reader.py": "a text of 256 KiB at most, from the bounded reader",
    "fixtures/data/build_tfrecords/source.py": "lines of a file that was read within bounds",
    "fixtures/data/build_tfrecords/writer.py": "an image that was read within bounds",
    "fixtures/data/images/preprocess.py": "an image that was opened within bounds",
    "fixtures/runtimes/tensorflow/application/checkpoints.py": "an open file; no pickle, and its "
    "arrays are no larger in memory than on disk",
    "plugins/record/files.py": "our own journal, locked; others are read line by line",
    # Written by us alone.
    "fixtures/case/values.py": "the value of --set, on the user's own command line",
    "fixtures/devices/__init__.py": "a file of the installed PyTorch",
    "fixtures/devices/energy.py": "files of the kernel",
    "fixtures/instances/protocol.py": "messages of instances, which have the key",
    "fixtures/machine/cgroup.py": "files of the kernel",
    "fixtures/machine/contention.py": "files of the kernel",
    "fixtures/machine/files.py": "what this user keeps or has built, for its digest",
    "fixtures/machine/memory.py": "files of the kernel",
    "fixtures/machine/packages.py": "metadata of installed packages",
    "fixtures/machine/process.py": "lines of our supervisor, logs of its processes",
    "fixtures/machine/processor.py": "files of the kernel",
    "fixtures/machine/supervisor.py": "an order from our parent",
    "fixtures/poplar/poplar_options.py": "the user's own --set, or our own YAML",
    "fixtures/runtimes/data_parallel.py": "a variable from our parent",
    "fixtures/runtimes/model_cache.py": "our own code, for its digest",
    "fixtures/runtimes/torch/host/engines.py": "kept models: code, in a private folder",
    "fixtures/servers/arrivals.py": "the summary that LoadGen has just written for us",
    "fixtures/servers/client.py": "orders from our parent",
    "fixtures/servers/clients.py": "lines from our clients",
    "fixtures/servers/tensorflow_serving/client.py": "requests that our own parent wrote",
    "fixtures/servers/tensorflow_serving/prediction_service.py": "a file that our own parent wrote",
    "fixtures/servers/triton/classifiers.py": "facts that this run wrote",
    "fixtures/servers/triton/client.py": "images that our own parent wrote",
    "fixtures/servers/triton/network.py": "arguments from our parent",
    "fixtures/servers/triton/python_model.py": "the configuration that this run wrote",
    "models/torch/classification.py": "weights of the user, read without pickle",
    "plugins/baseline/collected.py": "the list that our own child wrote",
    "plugins/benchmarks_yml/command.py": "what the user's own command printed",
    "plugins/benchmarks_yml/metrics.py": "what the user's own command printed",
    "plugins/command_line/set_option.py": "our own table",
    "plugins/count/callgrind.py": "counts that Valgrind wrote for this run",
    "plugins/count/calls.py": "files of the kernel",
    "plugins/compare/operations.py": "traces that this run wrote",
    "plugins/fleet/facts.py": "a file of the kernel",
    "plugins/processes/place.py": "output of the user's interpreter",
    "plugins/processes/versions.py": "metadata of installed packages",
    "plugins/record/pytest_benchmark_adapter.py": "a value of this process",
    "plugins/report/published.py": "our own table",
    "plugins/run/time_spent.py": "a file of the kernel",
    "plugins/web/templates.py": "our own templates, scripts and styles",
}


def _opens_to_read(call: ast.Call) -> bool:
    """Return whether a call is open(FILE), open(FILE, "rb"), PATH.open() or PATH.open("rb")."""
    if isinstance(call.func, ast.Name) and call.func.id == "open":
        words = call.args[1:]
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "open":
        words = call.args
    else:
        return False
    words = [*words, *(word.value for word in call.keywords if word.arg == "mode")]
    modes = [str(word.value) for word in words if isinstance(word, ast.Constant)]
    if words:  # an argument that is no mode means a method of ours
        return any("r" in mode or "+" in mode for mode in modes)
    return isinstance(call.func, ast.Name) or any(word.arg == "encoding" for word in call.keywords)


def _takes_whole(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    on, method = call.func.value, call.func.attr
    name = f"{on.id}.{method}" if isinstance(on, ast.Name) else ""
    return method in METHODS or name in FUNCTIONS


def reads(source: str) -> bool:
    """Return whether a module reads something whole or opens a file to read it."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return any(_opens_to_read(call) or _takes_whole(call) for call in calls)


def test_every_reader_is_listed_with_its_limits_or_why_it_needs_none() -> None:
    tops = ("plugins", "fixtures", "models")
    found = {
        path.relative_to(ROOT).as_posix()
        for top in tops
        for path in (ROOT / top).rglob("*.py")
        if reads(path.read_text(encoding="utf-8"))
    }
    assert found - set(READERS) == set(), "read it with fixtures/case/untrusted.py, or list it"
    assert set(READERS) - found == set(), "it no longer does so; remove its line"


@pytest.mark.parametrize(
    "line",
    [
        *("json.loads(text)", "path.read_text()", "np.load(file)", "Image.open(file)"),
        *("open(path)", 'open(path, "rb")', 'path.open("rb+")', 'path.open(encoding="utf-8")'),
    ],
)
def test_an_unlisted_reader_is_found(line: str) -> None:
    assert reads(f"def read(path):\n    return {line}\n")


def test_bounded_reads_and_writes_are_not_listed() -> None:
    for line in ("read_json(path)", 'open(path, "ab")', 'path.open("xb")', "self.open(address)"):
        assert not reads(f"def read(path):\n    return {line}\n")
