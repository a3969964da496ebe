"""Importing torchvision: what it loads, and what it must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import run_code

pytestmark = pytest.mark.framework

# As lines, which are compared one by one.
LATER = """
import sys
from ipubench.models.torch.torchvision_import import import_torchvision
torchvision = import_torchvision()
print("compiler", "torch._dynamo" in sys.modules, "torch._dynamo.utils" in sys.modules)
from torchvision.ops import roi_align
asked = roi_align.__globals__.get("is_compile_supported")
print("asked", None if asked is None else asked("cpu"))
import torch._dynamo.utils
print("real", torch._dynamo.utils.is_compile_supported("cpu"), hasattr(torch._dynamo, "optimize"))
"""
OTHER = """
import sys
sys.path.insert(0, sys.argv[1])
from ipubench.models.torch.torchvision_import import import_torchvision
found = import_torchvision()
import torch
print("same", found.counters is torch._dynamo.utils.counters)
"""


def test_torch_compile_is_imported_on_first_use() -> None:
    pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    run = run_code(LATER, framework="torch").assert_code(0)
    assert run.line("compiler") == "compiler False False"
    assert run.line("real") == "real True True"
    assert run.line("asked") in ("asked True", "asked None")  # older versions lack this function


def test_a_torchvision_that_needs_more_of_torch_compile_gets_it(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("from torch._dynamo.utils import counters\n")
    run = run_code(OTHER, str(tmp_path), framework="torch").assert_code(0)
    assert run.line("same") == "same True"


def test_without_torchvision_only_its_own_networks_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    from ipubench.models.torch import classification
    from ipubench.models.torch.classification import build_classifier

    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'torchvision'")

    monkeypatch.setattr(classification, "import_torchvision", missing)
    # The installed PyTorch stays, because PopTorch needs it.
    monkeypatch.setattr(torch, "__version__", "2.0.1+local")
    message = "resnet18 has layers of torchvision.* torch==2.0.1 "
    with pytest.raises(ValueError, match=message):
        build_classifier("resnet18")
    build_classifier("efficientnet-b0")
