"""A stand-in for what PyTorch 1.10 and torchvision 0.11 lack, those of the Poplar SDK 2.6 and 3.0.

The rest is the installed PyTorch.
"""

from __future__ import annotations

from typing import Any

import pytest


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take from the installed modules what the older ones lack."""
    import torch
    from torchvision import models

    resnet18 = models.resnet18

    def load(f: Any, map_location: Any = None, pickle_module: Any = None, **given: Any) -> Any:
        raise TypeError("an option of Unpickler, which runs the file's code")

    def resnet18_011(pretrained: bool = False, progress: bool = True, **kwargs: Any) -> Any:
        assert not pretrained and not kwargs, "ResNet takes no `weights`"
        return resnet18()

    monkeypatch.setattr(torch, "device", str)  # no context
    monkeypatch.setattr(torch, "load", load)
    monkeypatch.setattr(models, "resnet18", resnet18_011)
    monkeypatch.delattr(models, "get_model_weights")
