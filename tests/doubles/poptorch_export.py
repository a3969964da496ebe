"""The stand-in for PopTorch with the functions that exporting needs."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, List, Optional

from tests.doubles import poptorch as base
from tests.doubles.poptorch import recorded, recorder

#: The tensors of the compiled graph, by their names in PopTorch.
TENSORS = ["input", "conv1/conv1/Conv:0", "fc/fc/model/fc/fc/Gemm:0"]


def as_module() -> ModuleType:
    """Return a module ``poptorch``; the recorder starts empty."""
    module = base.as_module()
    module.PoplarExecutor = PoplarExecutor  # type: ignore[attr-defined]
    module.inferenceModel = inferenceModel  # type: ignore[attr-defined]
    return module


@recorded
def inferenceModel(model: Any, options: Optional[Any] = None) -> PoplarExecutor:
    return PoplarExecutor(model, options or base.Options(), False, "double")


class PoplarExecutor(base.PoplarExecutor):
    """A wrapped model that can be exported after compiling."""

    @recorded
    def compileAndExport(
        self, filename: str, *args: Any, export_model: bool = True, **kwargs: Any
    ) -> None:
        self._refuse_if_destroyed()
        self._check_inputs(args[0])
        if recorder.attach_error:
            raise base.Error(recorder.attach_error)
        Path(filename).write_bytes(b"popef")

    @recorded
    def getTensorNames(self) -> List[str]:
        self._refuse_if_destroyed()
        return list(TENSORS)
