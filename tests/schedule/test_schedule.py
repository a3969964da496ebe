"""Batches of a weight update, device calls between host events: pure arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.fixtures.schedule.batches import Batches
from ipubench.fixtures.schedule.program import MOST_UPDATES, Program, closest_divisor, divisors
from tests.support.tries import tries

# ------------------------------------------------------------------ batches


@pytest.mark.parametrize(
    ("micro", "replicas", "count", "whole", "expected"),
    [
        (8, 1, 8, None, (8, 64)),
        (3, 2, None, 12, (2, 12)),
        (3, 2, None, 10, (2, 12)),  # 1.67
        (16, 4, None, 8192, (128, 8192)),
        (18, 16, None, 3520, (12, 3456)),  # 12.2
        (2, 1, None, 5, (2, 4)),  # 2.5: the even count
        (2, 1, None, 7, (4, 8)),  # 3.5
        (8, 4, None, 3, (1, 32)),  # 0.09: one micro batch at least
    ],
)
def test_a_count_or_a_global_batch_gives_the_other(
    micro: int,
    replicas: int,
    count: Optional[int],
    whole: Optional[int],
    expected: Tuple[int, int],
) -> None:
    batches = Batches.of(micro, replicas, count, whole)
    assert (batches.gradient_accumulation, batches.global_batch_size) == expected
    assert batches.micro_batches_per_update == expected[0] * replicas
    assert bool(batches.warnings) == (whole is not None and whole != expected[1])


@pytest.mark.parametrize(("images", "micro_batches"), [(18, 4), (20, 4), (11, 0), (12, 4), (24, 8)])
def test_only_whole_weight_updates_count(images: int, micro_batches: int) -> None:
    assert Batches.of(3, 2, None, 10).micro_batches_per_epoch(images) == micro_batches


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 10**6))
def test_no_possible_global_batch_is_closer(micro: int, replicas: int, whole: int) -> None:
    found = Batches.of(micro, replicas, None, whole).global_batch_size
    step = micro * replicas
    assert found % step == 0
    others = [size for size in (found - step, found + step) if size > 0]
    assert all(abs(found - whole) <= abs(size - whole) for size in others)


# ------------------------------------------------------------------ the worked example

U = 781  # CIFAR-10 at a global batch of 64; it has the divisors 1, 11, 71 and 781


def program(
    logs: object, ckpts: object = 0, epochs: int = 6, updates: int = U, first: object = 0
) -> Program:
    return Program.of(updates, epochs, fraction(logs), fraction(ckpts), fraction(first))


def fraction(value: object) -> Fraction:
    return Fraction(str(value))


def log_lines(found: Program) -> List[int]:
    """Return the updates after which a line is due, of those at which the device returns."""
    ends = range(0, found.total_updates + 1, found.updates_per_call)
    return [done for done in ends if found.events(done)[0]]


# logs per epoch, updates per log, updates per call without checkpoints and with one an epoch, and
# the closest possible frequency where a warning names it.
ROWS = [
    ("1", 781, 781, 781, ""),
    ("2", 781, 781, 781, "1"),
    ("10", 71, 71, 71, "11"),
    ("41", 71, 71, 71, "11"),
    ("42", 11, 11, 11, "71"),
    ("426", 1, 1, 1, "781"),
    ("500", 1, 1, 1, "781"),
    ("1/2", 1562, 1562, 781, ""),
    ("1/3", 2343, 2343, 781, ""),
    ("0", 0, 4686, 781, ""),
]


@pytest.mark.parametrize("ckpts", [0, 1])
@pytest.mark.parametrize(("logs", "per_log", "alone", "with_ckpts", "possible"), ROWS)
def test_every_row_of_the_worked_example(
    logs: str, per_log: int, alone: int, with_ckpts: int, possible: str, ckpts: int
) -> None:
    found = program(logs, ckpts)
    assert found.updates_per_log == per_log
    assert found.updates_per_checkpoint == (U if ckpts else 0)
    assert found.updates_per_call == (with_ckpts if ckpts else alone)
    assert found.calls * found.updates_per_call == 4686
    # The line appears in both columns, also where its period is longer than an epoch.
    assert (
        log_lines(found) == list(range(per_log, 4687, per_log)) if per_log else not log_lines(found)
    )
    warnings = [text for text in found.warnings if "one device call" not in text]
    assert [text.rpartition(" is ")[2] for text in warnings] == ([possible] if possible else [])


def test_without_any_event_the_whole_run_is_one_call_and_a_warning_says_so() -> None:
    (warning,) = program(0, 0).warnings
    assert "all 4686 weight updates run in one device call" in warning
    assert "logs_per_epoch=0 and ckpts_per_epoch=0" in warning
    assert program(0, 1).warnings == ()


@pytest.mark.parametrize("ckpts", [0, 1])
def test_logs_must_end_with_the_run(ckpts: int) -> None:
    with pytest.raises(ValueError, match="log 2.0 epochs a time for 5 epochs; num_epochs must be"):
        program("1/2", ckpts, epochs=5)


@pytest.mark.parametrize("epochs", [3, 49, 107])
def test_a_fraction_is_exact(epochs: int) -> None:
    """As floats, 49 % (1 / (1 / 49)) is not 0."""
    found = program(f"1/{epochs}", epochs=epochs)
    assert (found.updates_per_log, found.calls) == (U * epochs, 1)


@pytest.mark.parametrize(
    ("logs", "ckpts", "first", "message"),
    [
        ("-1", "1", "0", "logs_per_epoch=-1 is below 0"),
        ("1", "-1/2", "0", "ckpts_per_epoch=-1/2 is below 0"),
        ("1", "1", "-1", "first_ckpt_epoch=-1 is below 0"),
        ("1", "1", "7", "first_ckpt_epoch=7: training ends after num_epochs=6"),
    ],
)
def test_frequencies_that_no_program_has(logs: str, ckpts: str, first: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        program(logs, ckpts, first=first)


@pytest.mark.parametrize(("updates", "epochs"), [(0, 6), (MOST_UPDATES, 2)])
def test_a_run_has_updates_and_an_end(updates: int, epochs: int) -> None:
    with pytest.raises(ValueError, match=f"num_epochs={epochs} x {updates} weight updates"):
        program(1, 1, epochs=epochs, updates=updates)


# ------------------------------------------------------------------ checkpoints


def checkpoints(found: Program) -> List[int]:
    ends = range(0, found.total_updates + 1, found.updates_per_call)
    return [done for done in ends if found.events(done)[1]]


@pytest.mark.parametrize(
    ("ckpts", "first", "epochs", "expected"),
    [
        ("1", "0", 3, [10, 20, 30]),
        ("2", "1", 3, [10, 15, 20, 25, 30]),
        ("1/4", "2", 10, [20, 60, 100]),  # divides the epochs after the first one
        ("1", "3", 3, [30]),
        ("1/2", "3", 3, [30]),
        ("0", "2", 3, []),
        ("1", "1/2", 2, [5, 15]),
    ],
)
def test_checkpoints_begin_where_asked(
    ckpts: str, first: str, epochs: int, expected: List[int]
) -> None:
    assert checkpoints(program(1, ckpts, epochs, updates=10, first=first)) == expected


def test_a_first_checkpoint_within_an_update_or_a_call_is_named() -> None:
    within_update, shorter = program(1, 1, updates=7, first="1/2").warnings
    assert "first_ckpt_epoch=1/2 lies within a weight update" in within_update
    assert "after 4 weight updates" in within_update
    assert "a device call has 1 of them" in shorter
    assert program(1, 1, updates=7, first=2).warnings == ()


def test_a_longest_call_divides_calls_and_moves_no_event() -> None:
    asked = program("1/2", 1)
    shorter = Program.of(U, 6, Fraction(1, 2), Fraction(1), most_per_call=100)
    assert (asked.updates_per_call, shorter.updates_per_call) == (781, 71)
    assert log_lines(shorter) == log_lines(asked)
    assert shorter.warnings == (
        "batches_per_step=100: 781 weight updates cannot be divided into calls of 100; a device "
        "call has 71 of them",
    )
    assert not Program.of(64, 1, Fraction(1), Fraction(0), most_per_call=16).warnings
    assert not Program.of(64, 1, Fraction(1), Fraction(0), most_per_call=99).warnings
    assert Program.of(U, 6, Fraction(1), Fraction(1), most_per_call=9999).calls == 6


# ------------------------------------------------------------------ any schedule


@given(st.integers(1, 5000), st.fractions(0, 6000))
def test_no_divisor_is_closer(number: int, wanted: Fraction) -> None:
    every = [d for d in range(1, number + 1) if number % d == 0]
    assert sorted(divisors(number)) == every
    best = min(abs(d - wanted) for d in every)
    assert abs(closest_divisor(number, wanted) - wanted) == best


def test_of_two_equally_close_divisors_the_one_of_the_smaller_factor_is_taken() -> None:
    assert closest_divisor(781, Fraction(41)) == 11  # as far from 71
    assert closest_divisor(781, Fraction(426)) == 781


FREQUENCIES = st.one_of(st.just(Fraction(0)), st.fractions(Fraction(1, 50), 60, max_denominator=50))


@tries(300)
@given(
    st.integers(1, 600),
    st.integers(1, 10),
    FREQUENCIES,
    FREQUENCIES,
    st.fractions(0, 10, max_denominator=4),
    st.integers(0, 50),
)
def test_calls_cover_every_epoch_and_meet_every_event(
    updates: int, epochs: int, logs: Fraction, ckpts: Fraction, first: Fraction, most: int
) -> None:
    try:
        found = Program.of(updates, epochs, logs, ckpts, first, most)
    except ValueError as error:
        assert "epochs a time" in str(error) or "before the first checkpoint" in str(error)
        return
    total = updates * epochs
    assert found.calls * found.updates_per_call == total
    assert not most or found.updates_per_call <= most
    ends = set(range(found.updates_per_call, total + 1, found.updates_per_call))
    for done in range(total + 1):
        assert not any(found.events(done)) or done in ends
    assert any(found.events(done)[0] for done in ends) == (logs > 0)
    assert any(found.events(done)[1] for done in ends) == (ckpts > 0)
    if logs:  # the last line is about the end of the run
        assert found.events(total)[0]
