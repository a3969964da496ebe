"""The groups of cases by their ``--families`` name, in running order."""

from __future__ import annotations

from typing import Dict, Type

from scripts.compare_peers.case import Family
from scripts.compare_peers.popart_graphs import PopartGraphs
from scripts.compare_peers.serving import Serving
from scripts.compare_peers.tensorflow_cnn import TensorFlowInference, TensorFlowTraining
from scripts.compare_peers.tensorflow_kernels import TensorFlowKernels
from scripts.compare_peers.torch_cnn import TorchCnn

FAMILIES: Dict[str, Type[Family]] = {
    "torch": TorchCnn,
    "tensorflow": TensorFlowInference,
    "training": TensorFlowTraining,
    "kernels": TensorFlowKernels,
    "popart": PopartGraphs,
    "serving": Serving,
}
#: Runs only on request: it starts a server and its clients.
USUAL = tuple(name for name in FAMILIES if name != "serving")
