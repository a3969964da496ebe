"""The command: its arguments, the levels, failing workers, and one small real comparison."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Tuple

import pytest

from ipubench.fixtures.machine.processor import Topology, allowed_isa
from scripts.compare_peers import __main__ as command
from scripts.compare_peers.case import (
    AVX2,
    NATIVE,
    Case,
    Family,
    NotMeasured,
    Row,
    environment_of,
    missing,
)
from scripts.compare_peers.worker import FAMILIES, OURS, Job, built, rows_of

pytestmark = pytest.mark.nightly

JOB = Job("popart", NATIVE, "32.32", 0.01, ["case"], False)


def topology(*flags: str) -> Topology:
    return Topology("a CPU", flags, (0, 1), 1)


def ends_with(code: str) -> List[Row]:
    """Return the rows of a worker that runs this program."""
    return list(command.measured(JOB, [sys.executable, "-c", code]))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_usual_cases_of_each_group_exist(family: str) -> None:
    names = FAMILIES[family].names()
    assert set(FAMILIES[family].usual) <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "words",
    [
        ["--families=jax"],
        ["--families=popart", "--cases=lstn"],
        ["--seconds=soon"],
        ["--level=sse"],
        ["--families=kernels", "--device=cuda"],
    ],
)
def test_an_argument_that_matches_nothing_ends_the_command(words: List[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(words)
    assert stopped.value.code == 4


def test_the_lower_level_has_the_makefiles_variables() -> None:
    environment = environment_of(AVX2, {"HOME": "/home", "XLA_FLAGS": "--other"})
    assert allowed_isa(environment) == ("avx2",)
    flags = environment["XLA_FLAGS"].split()
    assert flags == ["--xla_cpu_max_isa=AVX2", "--xla_cpu_experimental_ynn_fusion_type="]
    assert environment["HOME"] == "/home"
    assert environment_of(NATIVE, {"HOME": "/home"}) == {"HOME": "/home"}


def test_a_level_that_the_machine_cannot_imitate_has_a_reason() -> None:
    assert "has no AVX2" in missing(AVX2, topology())
    assert "this machine's own level" in missing(AVX2, topology("avx2"))
    assert missing(AVX2, topology("avx2", "avx512f")) == ""
    assert missing(NATIVE, topology()) == ""


def test_a_failing_worker_leaves_its_rows_and_a_reason() -> None:
    row = '{"family": "popart", "level": "native", "case": "a", "peer": "p"}'
    rows = ends_with(f"import os; print('{row}', flush=True); os.kill(os.getpid(), 9)")
    assert [r.case for r in rows] == ["a", ""]
    assert rows[1].reason.endswith(" SIGKILL after a")
    (row_of_error,) = ends_with("raise SystemExit('no torch')")
    assert row_of_error.reason.endswith(" code 1: no torch")


def fails(error: Exception) -> Any:
    """Return a builder that fails."""

    def build(*_: int) -> Any:
        raise error

    return build


def test_a_failing_program_is_left_out_with_its_reason() -> None:
    runs: List[int] = []
    builders: Dict[str, Any] = {
        OURS: lambda: runs.append,
        "missing": fails(NotMeasured("not here\nmore")),
        "breaks": lambda: fails(RuntimeError()),
    }
    programs, reasons = built(builders)
    assert list(programs) == [OURS] and runs == [1]
    assert reasons["missing"] == "not here"
    assert set(reasons) == {"missing", "breaks"}


class Tiny(Family):
    """One case whose peer takes as long, and one whose own program is missing."""

    title, unit, usual = "Tiny", "items/s", ("good",)
    closed: List[str] = []

    @classmethod
    def names(cls) -> List[str]:
        return ["good", "bad"]

    def open(self, name: str) -> Case:
        if name == "bad":
            raise NotMeasured("no network")
        peers = {"absent": fails(ImportError("no peer")), "same": lambda: sum_of}
        return Case(
            1.0, "float32", lambda: sum_of, peers, close=lambda: self.closed.append(name),
            call_seconds=1e-4,
        )  # fmt: skip


def sum_of(batches: int) -> int:
    return sum(range(100 * batches))


def rows(name: str) -> Tuple[Row, ...]:
    return tuple(rows_of(Tiny(None), name, JOB))  # type: ignore[arg-type]


def test_the_rows_of_a_case_are_in_the_order_of_its_peers() -> None:
    absent, same = rows("good")
    assert (absent.peer, absent.reason, absent.ratio) == ("absent", "no peer", None)
    assert same.low is not None and same.ratio is not None and same.high is not None
    assert same.low <= same.ratio <= same.high and same.rounds >= 6
    assert Tiny.closed == ["good"]
    (bad,) = rows("bad")
    assert (bad.peer, bad.reason) == (OURS, "no network")


def test_the_list_has_the_chosen_cases(capsys: pytest.CaptureFixture[str]) -> None:
    """`make nightly` measures the usual ones."""
    words = ["--families=popart,training", "--cases=bs8-h256-training,net50-bs8", "--list"]
    assert command.main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "popart: popart-lstm-t10-bs8-h256-training",
        "training: resnet50-bs8",
    ]
