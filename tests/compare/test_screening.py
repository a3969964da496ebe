"""`--against` screens its cases: one that passes in pairs with others needs none of its own."""

from __future__ import annotations

import math
import signal
import time
from typing import Dict

import pytest
from ipubench.plugins.compare.screening import has_passed

from ipubench.plugins.gate.inference import Effect
from ipubench.plugins.gate.metric_verdict import MetricVerdict
from ipubench.plugins.record.record import THROUGHPUT
from ipubench.plugins.record.verdict import IMPROVED, INCONCLUSIVE, PASS, REGRESSED, UNJUDGED
from tests.compare.test_against import interpreter
from tests.support.harness import Project, start_pytest

#: What happens in one case of the project, here or there.
EVENTS = """\
    import pytest
    there, which = "SIDE" in os.environ, (config.name, config.batch_size)
    slow = 1.0 if there or config.name != "beta" else 1.25
    if there and which == ("alpha", 1) and config.data == "synthetic":
        pytest.skip("not there")
"""
FAILING = '    assert not (there and which == ("alpha", 8)), "wrong result"\n'


@pytest.mark.slow
@pytest.mark.entry_point
def test_what_passes_in_pairs_with_others_needs_none_of_its_own(project: Project) -> None:
    path = project.folder / "bench_fake.py"
    source = path.read_text().replace('    if config.trouble == "error":\n', EVENTS + "    if 0:\n")
    source = source.replace(
        "        config.batch_seconds,\n", "        slow * config.batch_seconds,\n"
    )
    last = "flops=config.flops or None)\n"
    path.write_text(source.replace(last, last + FAILING))
    words = [
        "-k",
        "alpha-bs1 or alpha-bs8-synthetic or beta-synthetic",
        "--gate=5%",
        "--gate-cap=3",
    ]
    outcome = project.run(*words, interpreter(project, "SIDE=there")).assert_code(1)
    outcome.line(
        "1 of 4 cases passed in short pairs that measured all of them; 3 cases in pairs of"
    )
    found = {
        line["case"].split("[")[1]: line["verdict"]
        for line in project.journal()
        if line["type"] == "verdict"
    }
    assert {name: one["kind"] for name, one in found.items()} == {
        "alpha-bs1-synthetic]": "incomparable",
        "alpha-bs1-generated]": "pass",
        "alpha-bs8-synthetic]": "incomparable",
        "beta-synthetic]": "regressed",
    }
    pairs: Dict[str, int] = {}
    for line in project.journal():
        if line["type"] == "pair":
            name = line["here"]["name"]
            pairs[name] = pairs.get(name, 0) + 1
            brief = len(line["rounds"]["here"]["seconds"]) < 12
            assert brief == (name.endswith("alpha-bs1-generated]")), name
    assert sorted(pairs.values()) == [3, 4]  # --gate-cap of its own; the first look


SLEEPING = """\
    if "SIDE" in os.environ:
        import pathlib, time
        pathlib.Path("sleeps").touch()
        time.sleep(300)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 2), (signal.SIGTERM, 143)])
def test_an_interruption_has_one_line_that_names_resume(
    project: Project, number: int, code: int
) -> None:
    path = project.folder / "bench_fake.py"
    path.write_text(
        path.read_text().replace('    if config.trouble == "error":\n', SLEEPING + "    if 0:\n")
    )
    words = ("bench_fake.py", "--device=fake", "-k", "alpha", "--gate=5%")
    side = interpreter(project, "SIDE=there")
    run = start_pytest(project.folder, project.environment, *words, side)
    deadline = time.monotonic() + 120
    while not (project.folder / "sleeps").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(number)
    outcome = run.wait().assert_code(code)
    outcome.line("cases done; to continue, repeat the command with --resume")
    for said in ("nothing was compared", "nothing to compare", "passed in short pairs"):
        assert said not in outcome.text


BROKEN = "raise ValueError('broken')\n"


def test_nothing_is_compared_if_a_file_cannot_be_collected(project: Project) -> None:
    (project.folder / "bench_broken.py").write_text(BROKEN)
    words = ("bench_fake.py", "bench_broken.py", "-k", "alpha or broken", "--gate=5%")
    outcome = project.run(*words, interpreter(project, "SIDE=there")).assert_code(2)
    assert "screening" not in outcome.text and "--resume" not in outcome.text


@pytest.mark.parametrize(
    ("kind", "change", "threshold", "passed"),
    [
        (PASS, 0.03, 0.05, True),
        (REGRESSED, 0.2, 0.05, False),
        (IMPROVED, -0.2, 0.05, False),
        (INCONCLUSIVE, 0.0, 0.05, False),
        (UNJUDGED, 0.001, None, True),
        (UNJUDGED, 0.2, None, False),  # certain, but not equal
    ],
)
def test_only_what_is_clearly_equal_has_passed(
    kind: str, change: float, threshold: float, passed: bool
) -> None:
    effect = Effect(math.log1p(change), 0.001, 10)
    assert has_passed(MetricVerdict(THROUGHPUT, kind, effect, 1.0, 1.0, threshold)) == passed


def test_without_a_threshold_an_uncertain_change_has_not_passed() -> None:
    effect = Effect(0.0, 0.05, 10)
    assert not has_passed(MetricVerdict(THROUGHPUT, UNJUDGED, effect, 1.0, 1.0, None))
