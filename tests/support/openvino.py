"""OpenVINO in the tests' own process."""

from __future__ import annotations

import pytest

from ipubench.fixtures.runtimes.torch.openvino_guard import import_openvino


def needs_openvino() -> None:
    """Skip a test where OpenVINO is missing.

    pytest's own importorskip would let OpenVINO report to its makers what the tests convert, by a
    process for each report.
    """
    try:
        import_openvino()
    except ImportError:
        pytest.skip("needs OpenVINO: make setup installs it")
