"""Batches of a weight update, and device calls between host events: pure arithmetic."""

from __future__ import annotations

import re
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
        (8, 4, None, 3, (1, 32)),  # 0.09: at least one micro batch
    ],
)
def test_the_count_and_the_global_batch_determine_each_other(
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


@pytest.mark.parametrize(("count", "whole"), [(2, 12), (None, None)])
def test_both_and_neither_are_refused(count: Optional[int], whole: Optional[int]) -> None:
    with pytest.raises(ValueError, match="gradient_accumulation_count.*global_batch_size"):
        Batches.of(3, 2, count, whole)


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

U = 781  # CIFAR-10 with a global batch of 64; it has the divisors 1, 11, 71 and 781


def program(
    logs: object, ckpts: object = 0, epochs: int = 6, updates: int = U, first: object = 0
) -> Program:
    return Program.of(updates, epochs, fraction(logs), fraction(ckpts), fraction(first))


def fraction(value: object) -> Fraction:
    return Fraction(str(value))


def log_lines(found: Program) -> List[int]:
    """Return the updates with a log line, among those at which the device returns."""
    ends = range(0, found.total_updates + 1, found.updates_per_call)
    return [done for done in ends if found.events(done)[0]]


# Logs per epoch, updates per log, updates per call without checkpoints and with one per epoch, and
# the closest possible frequency if a warning names it.
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
    # The line appears in both columns, even if its period is longer than an epoch.
    assert (
        log_lines(found) == list(range(per_log, 4687, per_log)) if per_log else not log_lines(found)
    )
    warnings = [text for text in found.warnings if "one device call" not in text]
    assert [text.rpartition(" is ")[2] for text in warnings] == ([possible] if possible else [])


def test_warnings_name_the_request() -> None:
    assert "ckpts_per_epoch=2" in program(0, 2).warnings[0]
    (warning,) = program(0, 0).warnings
    assert "one device call" in warning and "ckpts_per_epoch=0" in warning
    assert program(0, 1).warnings == ()


@pytest.mark.parametrize("epochs", [3, 7, 49, 93, 100, 107])
def test_a_fraction_is_exact(epochs: int) -> None:
    """As floats, 49% (1 / (1 / 49)) is not 0."""
    found = program(f"1/{epochs}", epochs=epochs)
    assert (found.updates_per_log, found.calls) == (U * epochs, 1)


@pytest.mark.parametrize(
    ("logs", "ckpts", "first", "epochs", "updates", "named"),
    [
        ("-1", "1", "0", 6, U, "logs_per_epoch=-1"),
        ("1", "-1/2", "0", 6, U, "ckpts_per_epoch=-1/2"),
        ("1", "1", "-1", 6, U, "first_ckpt_epoch=-1"),
        ("1", "1", "7", 6, U, "first_ckpt_epoch=7: .*num_epochs=6"),
        ("1/2", "0", "0", 5, U, "logs_per_epoch=1/2: .* 2.0 epochs .* 5 "),
        ("1/2", "1", "0", 5, U, "logs_per_epoch=1/2: .* 2.0 epochs .* 5 "),
        ("1", "1", "0", 6, 0, "num_epochs=6 x 0 "),
        ("1", "1", "0", 2, MOST_UPDATES, f"num_epochs=2 x {MOST_UPDATES} "),
    ],
)
def test_impossible_schedules_are_refused(
    logs: str, ckpts: str, first: str, epochs: int, updates: int, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        program(logs, ckpts, epochs, updates, first)


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
def test_checkpoints_begin_as_requested(
    ckpts: str, first: str, epochs: int, expected: List[int]
) -> None:
    assert checkpoints(program(1, ckpts, epochs, updates=10, first=first)) == expected


def test_a_first_checkpoint_within_an_update_or_a_call_is_named() -> None:
    within_update, shorter = program(1, 1, updates=7, first="1/2").warnings
    assert "first_ckpt_epoch=1/2" in within_update and "after 4 weight updates" in within_update
    assert "device call has 1 " in shorter
    assert program(1, 1, updates=7, first=2).warnings == ()


def test_a_longest_call_divides_calls_and_moves_no_event() -> None:
    asked = program("1/2", 1)
    shorter = Program.of(U, 6, Fraction(1, 2), Fraction(1), most_per_call=100)
    assert (asked.updates_per_call, shorter.updates_per_call) == (781, 71)
    assert log_lines(shorter) == log_lines(asked)
    assert "batches_per_step=100" in shorter.warnings[0] and "has 71 of" in shorter.warnings[0]
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


def test_of_two_equally_close_divisors_the_smaller_factor_wins() -> None:
    assert closest_divisor(781, Fraction(41)) == 11  # as far from 71
    assert closest_divisor(781, Fraction(426)) == 781
    assert closest_divisor(49, Fraction(6)) == 7


FREQUENCIES = st.one_of(st.just(Fraction(0)), st.fractions(Fraction(1, 50), 60, max_denominator=50))


@tries(300)
@given(
    st.integers(1, 200),
    st.integers(1, 6),
    FREQUENCIES,
    FREQUENCIES,
    st.fractions(0, 10, max_denominator=4),
    st.integers(0, 50),
)
def test_calls_cover_every_epoch_and_reach_every_event(
    updates: int, epochs: int, logs: Fraction, ckpts: Fraction, first: Fraction, most: int
) -> None:
    try:
        found = Program.of(updates, epochs, logs, ckpts, first, most)
    except ValueError as error:
        assert re.match("(logs_per_epoch|first_ckpt_epoch)=", str(error))
        return
    total = updates * epochs
    assert found.calls * found.updates_per_call == total
    assert not most or found.updates_per_call <= most
    ends = set(range(found.updates_per_call, total + 1, found.updates_per_call))
    for done in range(total + 1):
        assert not any(found.events(done)) or done in ends
    assert any(found.events(done)[0] for done in ends) == (logs > 0)
    assert any(found.events(done)[1] for done in ends) == (ckpts > 0)
    if logs:  # the last line is at the end of the run
        assert found.events(total)[0]
