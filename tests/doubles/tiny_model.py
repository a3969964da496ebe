"""A model for Triton's Python backend that starts at once and fails on demand.

For images [N, 3, S, S] it returns [N, 4]: their sum, largest, smallest and first value. Its
parameter ``folder`` names a folder whose files order it to fail.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args: Dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        self.folder = Path(parameters["folder"]["string_value"])
        if (self.folder / "fail-to-load").exists():
            raise RuntimeError("the weights are missing on purpose")

    def execute(self, requests: List[Any]) -> List[Any]:
        if (self.folder / "kill-the-server").exists():
            print("about to be killed", flush=True)
            os.kill(os.getppid(), signal.SIGKILL)
        if (self.folder / "raise").exists():
            raise ValueError("wrong on purpose")
        responses = []
        for request in requests:
            images = triton.get_input_tensor_by_name(request, "input_0").as_numpy()
            flat = images.reshape(len(images), -1).astype(np.float32)
            columns = (flat.sum(1), flat.max(1), flat.min(1), flat[:, 0])
            scores = triton.Tensor("output_0", np.stack(columns, 1))
            responses.append(triton.InferenceResponse(output_tensors=[scores]))
        return responses
