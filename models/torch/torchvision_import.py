"""Import torchvision beside a CPU-only PyTorch.

torchvision's wheel is built for CUDA. Beside a CPU build of PyTorch its C++ operators do not load
and ``import torchvision`` stops at ``operator torchvision::nms does not exist``. The
classification models use none of them, so declaring the two missing schemas is enough.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, List

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
# A declaration lives as long as its Library object.
_libraries: List[Any] = []


def import_torchvision() -> ModuleType:
    """Return the module torchvision, with its detection operators declared where missing."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if _libraries or "torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        library.define(schema)
    _libraries.append(library)
    return importlib.import_module("torchvision")
