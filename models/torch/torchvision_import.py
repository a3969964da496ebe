"""Imports torchvision with a CPU-only PyTorch, and without what only its detectors need.

torchvision's wheel is built for CUDA. With a CPU build of PyTorch its C++ operators do not load,
and ``import torchvision`` stops at ``operator torchvision::nms does not exist``. The classification
models use none of these operators, so declaring the two missing schemas is enough.

One of these operators checks whether torch.compile supports a device. For that, torchvision imports
all of torch.compile, which takes as long as PyTorch itself.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType
from typing import Any, Iterator, List

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
# A declaration lives as long as its Library object.
_libraries: List[Any] = []
_COMPILER = "torch._dynamo.utils"


def import_torchvision() -> ModuleType:
    """Import torchvision, with its detection operators declared if they are missing."""
    try:
        with _compiler_imported_later():
            return _declared()
    except ImportError:  # another version needs more of it
        _forget()
        return _declared()


def _declared() -> ModuleType:
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if _libraries or "torchvision::" not in str(error):
            raise
    _forget()
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        library.define(schema)
    _libraries.append(library)
    return importlib.import_module("torchvision")


def _forget() -> None:
    """Remove the modules of a failed import."""
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]


@contextlib.contextmanager
def _compiler_imported_later() -> Iterator[None]:
    """Replace torch.compile's check by a function that imports torch.compile when called."""
    if _COMPILER in sys.modules:
        yield
        return
    stand_in = ModuleType(_COMPILER)
    vars(stand_in)["is_compile_supported"] = _is_compile_supported
    sys.modules[_COMPILER] = stand_in
    try:
        yield
    finally:
        del sys.modules[_COMPILER]


def _is_compile_supported(device_type: str) -> bool:
    """Return whether torch.compile can compile for a type of device."""
    return bool(importlib.import_module(_COMPILER).is_compile_supported(device_type))
