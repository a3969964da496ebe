"""The recipes work as written, in a copy of the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.harness import SuiteServer
from tests.support.reader import DOCS, Reader, commands

PAGE = (DOCS / "how-to" / "recipes.md").read_text(encoding="utf-8")
ONE, TWO = PAGE.split("\n## ")[1:]
# Added to a conftest.py: the comparison measures no second pair.
ONE_PAIR = """
from ipubench.plugins.gate import pairs

pairs.too_many_disturbed = lambda usable, measured: measured == 1
"""

pytestmark = [pytest.mark.framework, pytest.mark.nightly]


def test_an_entry_is_measured_and_gated(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "torch")
    configs = reader.folder / "bench_inference" / "configs.yml"
    (entry,) = re.findall(r"```yaml\n    (.*?)    ```", ONE, re.DOTALL)
    text = configs.read_text(encoding="utf-8")
    assert text.count("\nhost:\n") == 1
    configs.write_text(text.replace("\nhost:\n", f"\nhost:\n{entry}"), encoding="utf-8")
    listing, measure, save, gate, against = commands(ONE, indent=8)

    listed = reader.pytest(f"{listing} -m quick").text
    assert "bench_cnn_torch[resnet50-float32-bs4-synthetic]" in listed
    few = ("--set=model=mobilenet-v3-small", "--set=engine=eager", "--budget=0.2")
    saved = reader.pytest(save, *few, "--processes=1", "--keep-disturbed").assert_code(0)
    assert saved.line("baseline with 1 case written to ").endswith("baselines/float32.json")
    # The code is equal, but from two processes: they are compared on any machine. There is no time
    # for fresh ones.
    judged = reader.pytest(gate, *few, "--gate-time=1s")
    assert re.search(r"\(gate 2\.0%\): 1 (pass|inconclusive|improved|regressed)\b", judged.text)
    for command in (measure, against):  # what the previous command ran, and what needs a history
        assert "resnet50-float32-bs4-synthetic" in command
    assert "--against=git:merge-base:main" in against


def test_two_environments_are_compared_at_chosen_sizes(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "tensorflow")
    # Instead of an installation: the packages of this environment, which are imported already.
    old = reader.folder / "old" / "bin" / "python"
    old.parent.mkdir(parents=True)
    SuiteServer.python(old, "tensorflow")
    # One pair shows that both alternate; three would take half a minute and judge no better.
    conftest = reader.folder / "conftest.py"
    conftest.write_text(conftest.read_text(encoding="utf-8") + ONE_PAIR, encoding="utf-8")
    (command,) = commands(TWO, indent=8)
    # Two minutes: on a busy machine one pair takes half a minute.
    outcome = reader.pytest(command, "--budget=0.1", "--gate-time=2min")
    assert "lstm-inference-synthetic-bs8-hiddensize256-inputsize80-timesteps50" in outcome.text
    assert "the same versions" in outcome.text
    # Next to a busy neighbour a pair is measured too, but no change is reported.
    judged = r"items/s there, [+-]"
    not_judged = r"-> [\d.,]+ items/s, disturbed"
    assert re.search(rf": pair 1: [\d.,]+ ({judged}|{not_judged})", outcome.text)
    assert "(gate 5.0%): 1 inconclusive" in outcome.text
