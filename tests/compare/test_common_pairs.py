"""`--against` measures all open cases in the same pairs of processes."""

from __future__ import annotations

import signal
import time
from typing import Dict, List

import pytest

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
def test_cases_share_pairs_until_each_is_decided(project: Project) -> None:
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
    outcome.line("  4 of 4 cases decided")
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
    pairs: Dict[str, List[bool]] = {}
    for line in project.journal():
        if line["type"] == "pair":
            pairs.setdefault(line["case"].split("[")[1], []).append(line.get("alone", True))
    equal, slower = pairs["alpha-bs1-generated]"], pairs["beta-synthetic]"]
    assert equal == [False] * 3
    # It leaves the others after two pairs, and two of its own confirm it.
    assert slower[:2] == [False, False] and slower[2:].count(False) == 0 < len(slower[3:])


SLEEPING = """\
    if "SIDE" in os.environ:
        import pathlib, time
        pathlib.Path("sleeps").touch()
        time.sleep(300)
"""


@pytest.mark.slow
def test_an_interruption_has_one_line_that_names_resume(project: Project) -> None:
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
    run.send_signal(signal.SIGINT)
    outcome = run.wait().assert_code(2)
    outcome.line("the command with --resume")
    for said in ("nothing was compared", "nothing to compare", "passed in short pairs"):
        assert said not in outcome.text


SECOND_PAIR = """\
    if "SIDE" in os.environ and config.batch_size == 8:
        import pathlib, time
        starts = pathlib.Path("starts")
        starts.write_text((starts.read_text() if starts.exists() else "") + ".")
        if starts.read_text() == "..":
            pathlib.Path("sleeps").touch()
            time.sleep(300)
"""


@pytest.mark.slow
def test_a_resumed_comparison_keeps_its_pairs(project: Project) -> None:
    path = project.folder / "bench_fake.py"
    trouble = '    if config.trouble == "error":\n'
    path.write_text(path.read_text().replace(trouble, SECOND_PAIR + "    if 0:\n"))
    chosen = "alpha-bs1-synthetic or alpha-bs8-synthetic"
    words = ("--device=fake", "-k", chosen, "--gate=5%", "--gate-cap=4")
    side = interpreter(project, "SIDE=there")
    run = start_pytest(project.folder, project.environment, *words, side)
    deadline = time.monotonic() + 120
    while not (project.folder / "sleeps").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    run.wait().assert_code(143).line("the command with --resume")
    run = start_pytest(project.folder, project.environment, *words, side, "--resume")
    run.wait().assert_code(0).line("0 cases are done, the pairs of 2 cases are kept")
    pairs = [line["case"] for line in project.journal() if line["type"] == "pair"]
    # The pair that was interrupted had measured the first of both cases.
    assert [pairs.count(name) for name in sorted(set(pairs))] == [4, 4]


SKIPS = """\
    import pytest
    if (config.batch_size == 1) == ("SIDE" in os.environ):
        pytest.skip("not on this side")
"""


@pytest.mark.slow
def test_a_case_that_one_side_skips_is_open_whatever_the_other_side_skips(project: Project) -> None:
    path = project.folder / "bench_fake.py"
    trouble = '    if config.trouble == "error":\n'
    path.write_text(path.read_text().replace(trouble, SKIPS + "    if 0:\n"))
    words = ("-k", "alpha-bs1-synthetic or alpha-bs8-synthetic", "--gate=5%")
    outcome = project.run(*words, interpreter(project, "SIDE=there")).assert_code(6)
    outcome.line("2 of 2 cases are open")


EXITS = """\
    if "IPUBENCH_LEASE_HOLDER" not in os.environ:
        import pytest
        pytest.exit("bye", returncode=0)
"""


@pytest.mark.slow
def test_a_session_that_ends_early_passes_no_gate(project: Project) -> None:
    """The case is slower, and its test ends the session of the run alone."""
    path = project.folder / "bench_fake.py"
    trouble = '    if config.trouble == "error":\n'
    path.write_text(path.read_text().replace(trouble, EXITS + "    if 0:\n"))
    side = interpreter(project, "IPUBENCH_FAKE_SLOWDOWN=0.8")
    outcome = project.run("-k", "beta-synthetic", "--gate=5%", side).assert_code(1)
    outcome.line("regressed: bench_fake.py::bench_fake[beta-synthetic]")
    outcome.line("the gate fails, for 1 case")


BROKEN = "raise ValueError('broken')\n"


def test_nothing_is_compared_if_a_file_cannot_be_collected(project: Project) -> None:
    (project.folder / "bench_broken.py").write_text(BROKEN)
    words = ("bench_fake.py", "bench_broken.py", "-k", "alpha or broken", "--gate=5%")
    outcome = project.run(*words, interpreter(project, "SIDE=there")).assert_code(2)
    assert "decided" not in outcome.text and "--resume" not in outcome.text
