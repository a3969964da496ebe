"""PyTorch's image classifiers compared with the programs that people would otherwise run.

Ours takes raw uint8 images and normalises them, in the engine of ``engine=auto``. The peers get
normalised images: torchvision's network in eager mode and under torch.compile, timm's as its
benchmark program runs it (channels last, under torch.compile), OpenVINO with its LATENCY hint, and
ONNX Runtime on the exported graph. Images and weights have the compute type, except that OpenVINO
takes float32 images and a precision hint, and ONNX Runtime computes in float32 because it has no
bfloat16 on a CPU. On a GPU, torch.compile with CUDA graphs (also with frozen weights) and TensorRT
(if torch_tensorrt is installed) replace the last two, and all images are already there.
"""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from typing import Any, Callable, Dict, List

from ipubench.bench_inference.bench_cnn_torch import HOST
from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.runtimes.torch.host.engines import (
    build_engine,
    default_engine,
    import_openvino,
)
from ipubench.models.torch.architectures import ARCHITECTURES
from scripts.compare_peers.case import (
    Case,
    Conditions,
    Family,
    NotMeasured,
    Program,
    repeated,
)

BATCH_SIZES = (1, 16)
GPU_BATCH_SIZES = (*BATCH_SIZES, 128)
ENGINES = ("onednn", "compile", "eager")  # PyTorch's own
Network = Callable[[], Any]


class TorchCnn(Family):
    """Every host configuration of the PyTorch classifiers at two or three batch sizes."""

    title = "PyTorch CNN inference"
    unit = "images/s"
    usual = ("resnet50-bs1", "resnet50-bs16")
    devices = ("cpu", "cuda")

    @classmethod
    def names(cls) -> List[str]:
        return cls.names_on("cpu")

    @classmethod
    def names_on(cls, device: str) -> List[str]:
        sizes = BATCH_SIZES if device == "cpu" else GPU_BATCH_SIZES
        return [f"{name}-bs{size}" for name in HOST for size in sizes]

    def __init__(self, conditions: Conditions) -> None:
        import torch

        super().__init__(conditions)
        if not conditions.on_gpu:
            torch.set_num_threads(conditions.device.threads)

    def open(self, name: str) -> Case:
        import torch

        # Otherwise networks of one class count as recompilations, and after a few PyTorch stops
        # compiling.
        torch._dynamo.reset()
        network, _, size = name.rpartition("-bs")
        config = dataclasses.replace(HOST[network], micro_batch_size=int(size))
        return Case(
            float(size), self.conditions.dtype, partial(self._ours, config), self._peers(config)
        )

    def _ours(self, config: Classifier, engine: str = "auto") -> Program:
        import torch

        shape = (config.micro_batch_size, 3, config.image_size, config.image_size)
        images = torch.randint(0, 255, shape, dtype=torch.uint8, device=self.conditions.device.kind)
        built = build_engine(
            engine, config.network()(), shape, images.dtype, self._dtype(), images.device,
            normalise=True,
        )  # fmt: skip
        return _program(built.run, images)

    def _peers(self, config: Classifier) -> Dict[str, Callable[[], Program]]:
        batch_norm = config.norm_type == "batch"
        found: Dict[str, Callable[[], Program]] = {}
        if batch_norm:
            torchvision = partial(_torchvision_network, config)
            found["torchvision, eager"] = partial(self._eager, torchvision, config)
            found["torch.compile"] = partial(self._compiled, torchvision, config)
        if batch_norm and ARCHITECTURES[config.model].in_timm:
            timm = partial(_timm_network, config)
            found["timm, torch.compile"] = partial(self._compiled, timm, config)
        # torchvision has no network with group norms.
        plain = partial(_torchvision_network, config) if batch_norm else config.network()
        if self.conditions.on_gpu:
            graphs = {"mode": "reduce-overhead"}
            found["CUDA graphs"] = partial(self._compiled, plain, config, **graphs)
            found["CUDA graphs, frozen"] = partial(self._frozen, plain, config, **graphs)
            found["TensorRT"] = partial(self._tensorrt, plain, config)
            return found
        found["OpenVINO, LATENCY"] = partial(self._openvino, plain, config)
        found["ONNX Runtime, f32"] = partial(self._onnxruntime, plain, config)
        if self.conditions.own:
            ours = default_engine(self.conditions.device.kind, config.norm_type == "group")
            for engine in ENGINES:
                if engine != ours:
                    found[f"ours, engine={engine}"] = partial(self._ours, config, engine)
        return found

    def _dtype(self) -> Any:
        import torch

        return getattr(torch, self.conditions.dtype)

    def _images(self, config: Classifier, dtype: Any) -> Any:
        import torch

        return torch.rand(
            config.micro_batch_size, 3, config.image_size, config.image_size
        ).to(self.conditions.device.kind, dtype)  # fmt: skip

    def _eager(self, make: Network, config: Classifier) -> Program:
        return _program(self._cast(make), self._channels_last(config))

    def _compiled(self, make: Network, config: Classifier, **how: Any) -> Program:
        import torch

        run = torch.compile(self._cast(make), dynamic=False, **how)
        return _program(run, self._channels_last(config))

    def _frozen(self, make: Network, config: Classifier, **how: Any) -> Program:
        """Return the network compiled with its weights as constants, which folds batch norms."""
        import torch
        from torch._inductor import config as inductor

        program = self._compiled(make, config, **how)
        # Freezing is a global setting of the compiler and works only in inference.
        with inductor.patch(freezing=True), torch.inference_mode():
            program(1)
        return program

    def _cast(self, make: Network) -> Any:
        import torch

        network = make().to(self._dtype(), memory_format=torch.channels_last).eval()
        return network.to(self.conditions.device.kind)

    def _tensorrt(self, make: Network, config: Classifier) -> Program:
        try:
            import torch_tensorrt
        except ImportError:
            raise NotMeasured("torch_tensorrt is not installed") from None
        images = self._channels_last(config)
        run = torch_tensorrt.compile(
            self._cast(make), inputs=[images], enabled_precisions={self._dtype()}
        )
        return _program(run, images)

    def _channels_last(self, config: Classifier) -> Any:
        import torch

        return self._images(config, self._dtype()).contiguous(memory_format=torch.channels_last)

    def _openvino(self, make: Network, config: Classifier) -> Program:
        """Return OpenVINO as in its documentation: float input, precision by the hint."""
        import torch

        openvino = import_openvino()
        images = self._images(config, torch.float32)
        numbers = images.numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = openvino.convert_model(
                make().eval(), example_input=images, input=list(images.shape)
            )
        precision = {"bfloat16": "bf16", "float32": "f32"}[self.conditions.dtype]
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
        request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
        return repeated(lambda: request.infer([numbers], share_inputs=True, share_outputs=True))

    def _onnxruntime(self, make: Network, config: Classifier) -> Program:
        self.conditions.require_onnxruntime_level()
        import onnxruntime
        import torch

        images = self._images(config, torch.float32)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.conditions.device.threads
        # Its threads spin while it runs, but must not spin into the next program's time.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        with scratch.folder("peers") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = str(folder / "network.onnx")
            # ONNX Runtime folds constants itself; PyTorch's folding drops part of a group norm.
            torch.onnx.export(
                make().eval(),
                (images,),
                path,
                dynamo=False,
                do_constant_folding=False,
                input_names=["images"],
            )
            session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        feed = {"images": images.numpy()}
        return repeated(lambda: session.run(None, feed))


def _program(run: Callable[[Any], Any], images: Any) -> Program:
    import torch

    batches_of = repeated(partial(run, images))

    def program(batches: int) -> None:
        with torch.inference_mode():
            batches_of(batches)
        if images.is_cuda:
            torch.cuda.synchronize()

    return program


def _torchvision_network(config: Classifier) -> Any:
    from ipubench.models.torch.torchvision_import import import_torchvision

    architecture = ARCHITECTURES[config.model]
    name = architecture.in_torchvision or architecture.variant
    return getattr(import_torchvision().models, name)(weights=None)


def _timm_network(config: Classifier) -> Any:
    from ipubench.models.torch.torchvision_import import import_torchvision

    import_torchvision()
    import timm

    return timm.create_model(ARCHITECTURES[config.model].in_timm)
