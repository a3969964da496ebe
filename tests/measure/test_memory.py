"""A case that needs more memory than available: one message with the requested amount."""

from __future__ import annotations

import pytest

from ipubench.plugins.measure.memory import LONGEST, shortage
from tests.support.harness import Project


class OutOfMemoryError(RuntimeError):
    """Like PyTorch's, which is also a RuntimeError."""


class ResourceExhaustedError(Exception):
    """Like TensorFlow's."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "MemoryError"),
        (MemoryError("Unable to allocate 7.28 TiB"), "Unable to allocate 7.28 TiB"),
        (OutOfMemoryError("CUDA: tried 9 GiB\nmore"), "CUDA: tried 9 GiB"),
        (ResourceExhaustedError("{{node x}}\nOOM when allocating y"), "OOM when allocating y"),
        (
            RuntimeError("a trace\n[enforce fail] . DefaultCPUAllocator: can't allocate memory: 4"),
            "[enforce fail] . DefaultCPUAllocator: can't allocate memory: 4",
        ),
        (RuntimeError("std::bad_alloc"), "std::bad_alloc"),
        (ValueError("array is too big; more\x1b[2J"), "array is too big; more\\x1b[2J"),
        (RuntimeError("Out of memory: cannot fit all variable data"), "Out of memory: cannot fit"),
    ],
)
def test_errors_of_missing_memory(error: Exception, said: str) -> None:
    found = shortage(error)
    assert found is not None and found.startswith(said) and "\n" not in found


@pytest.mark.parametrize("error", [None, ValueError("memory_format is wrong"), KeyError("x")])
def test_other_errors(error: Exception) -> None:
    assert shortage(error) is None


def test_a_long_reason_is_cut() -> None:
    assert len(shortage(MemoryError("x" * 9999)) or "") <= LONGEST + 3


@pytest.mark.slow
def test_one_message_and_the_run_continues(project: Project) -> None:
    words = ["-k", "beta-synthetic or alpha-bs8-synthetic", "--set=trouble=memory,none"]
    outcome = project.run(*words, "--set=batch_size=1000000").assert_code(1)
    assert "2 failed, 2 passed" in outcome.text
    assert "Traceback" not in outcome.text
    text = " ".join(outcome.text.split())
    assert "more memory" in text and " with batch_size=1000000, trouble=memory" in text
    assert " 7.28 TiB " in text


def test_a_request_beyond_the_machine_fails_one_case(project: Project) -> None:
    """Linux might promise the memory and kill the run when a case uses it."""
    small = (
        "from ipubench.fixtures.machine import memory\n"
        "memory.available = lambda: 0\n"
        "memory.UNUSED = 256 << 20\n"
    )
    project.add_to_conftest(small)
    outcome = project.run("-k", "beta-synthetic", "--set=trouble=greed,none").assert_code(1)
    assert "1 failed, 1 passed" in outcome.text
    text = " ".join(outcome.text.split())
    assert "more memory" in text and " with trouble=greed" in text
