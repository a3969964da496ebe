"""A Triton request as an independent client sends it, without the suite's code."""

from __future__ import annotations

from typing import Any

from ipubench.fixtures.servers.triton.repository import INPUT, OUTPUT


def infer_request(model: str, images: Any) -> Any:
    """Return the gRPC message that asks a model for the classes of ``images``."""
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name=INPUT, datatype="UINT8")
    tensor.shape.extend(images.shape)
    request.outputs.add(name=OUTPUT)
    request.raw_input_contents.append(images.tobytes())
    return request
