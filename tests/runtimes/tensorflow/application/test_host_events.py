"""Log lines and checkpoints between device calls, on the test's own clock."""

from __future__ import annotations

import logging
import math
import re
from fractions import Fraction
from typing import List

import pytest

from ipubench.fixtures.runtimes.tensorflow.application.host_events import HostEvents
from ipubench.fixtures.schedule.program import Program

IMAGES = 64  # seconds of a weight update


class Run:
    """A run of a program with calls of known times."""

    def __init__(self, program: Program) -> None:
        self.saved: List[int] = []
        self.now = 0.0
        self.updates = 0
        self.program = program
        self.events = HostEvents(program, IMAGES, self.save, clock=lambda: self.now)

    def save(self) -> None:
        """Take a long time, which no log line may include."""
        self.saved.append(self.updates)
        self.now += 1000.0

    def call(self, seconds: float = 1.0, loss: float = 1.0, accuracy: float = 0.5) -> None:
        """Make one device call."""
        self.events.begin()
        self.now += seconds
        self.updates += self.program.updates_per_call
        self.events.end(self.updates, 0.1, loss, accuracy)


def test_a_line_has_the_means_of_the_calls_since_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run(Program(10, 4, updates_per_log=10, updates_per_checkpoint=5, updates_per_call=5))
    with caplog.at_level(logging.INFO, "ipubench.training"):
        run.call(1.0, loss=4.0, accuracy=0.25)
        run.call(3.0, loss=2.0, accuracy=0.5)
        run.call(2.0, loss=math.nan, accuracy=1.0)  # it diverged
        run.call(2.0, loss=1.0, accuracy=1.0)
        for _ in range(2):  # synthetic data on IPUs returns nothing
            run.call(2.0, loss=math.nan, accuracy=math.nan)
    assert caplog.messages == [
        # 640 images in 4 s; the mean of the two calls' rates would be 213.
        "batch 10: [throughput: 160.00 samples/sec, epoch: 1, lr: 0.1, loss: 3, "
        "training_accuracy: 37.500 %]",
        "batch 20: [throughput: 160.00 samples/sec, epoch: 2, lr: 0.1, loss: nan, "
        "training_accuracy: 100.000 %]",
        "batch 30: [throughput: 160.00 samples/sec, epoch: 3, lr: 0.1]",
    ]
    assert run.saved == [5, 10, 15, 20, 25, 30]
    assert run.events.seconds == 12.0
    assert run.events.counters() == {"log_lines": 3, "checkpoints": 6}


@pytest.mark.parametrize("checkpoints", [0, 1])
@pytest.mark.parametrize(
    ("logs", "wanted"),
    [
        (Fraction(1), [781, 1562, 2343, 3124, 3905, 4686]),
        (Fraction(1, 3), [2343, 4686]),
        (Fraction(0), []),
    ],
)
def test_the_line_appears_in_both_columns_of_the_example(
    caplog: pytest.LogCaptureFixture, logs: Fraction, wanted: List[int], checkpoints: int
) -> None:
    """CIFAR-10 in global batches of 64 for 6 epochs, with and without checkpoints."""
    run = Run(Program.of(781, 6, logs, Fraction(checkpoints)))
    with caplog.at_level(logging.INFO, "ipubench.training"):
        for _ in range(run.program.calls):
            run.call()
    lines = [re.match(r"batch (\d+): \[throughput: ", text) for text in caplog.messages]
    assert [int(line.group(1)) for line in lines if line] == wanted
    assert run.saved == [781 * epoch for epoch in range(1, 7)] * checkpoints
