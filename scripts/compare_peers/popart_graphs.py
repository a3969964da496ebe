"""PopART's kernels on a CPU against the obvious PyTorch programs, and against ONNX Runtime.

Ours is the step that the benchmark times, in the engine of ``engine=auto``. The peers:

- torch module: torch.nn.LSTM or torch.nn.Conv2d with the loss and torch.optim.SGD, in a loop;
- channels last: the same convolution with its images and filters in that layout;
- CUDA graph: on a GPU, the first, the convolution channels last, each batch one CUDA graph;
- ONNX Runtime: the same graph in float32, if ours runs on another engine; it cannot train.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

from ipubench.bench_kernels.bench_popart_conv import PopartConv, conv
from ipubench.bench_kernels.bench_popart_lstm import PopartLstm, lstm
from ipubench.fixtures.runtimes.onnx.onnx_host import OnnxHost, OnnxStep
from scripts.compare_peers.case import Case, Conditions, Family, Program
from scripts.steps import DATA

BATCHES = 4  # input batches, which every program alternates
RUNTIME = "onnxruntime"
CONFIGS: List[Any] = [
    PopartLstm(),
    PopartLstm(name="popart-lstm-t5-bs1-h128", timesteps=5, hidden_size=128),
    PopartLstm(name="popart-lstm-t10-bs8-h256", timesteps=10, batch_size=8, hidden_size=256),
    PopartLstm(name="popart-lstm-t25-bs64-h256", timesteps=25, batch_size=64, hidden_size=256),
    PopartLstm(name="popart-lstm-t25-bs64-h1024", timesteps=25, batch_size=64, hidden_size=1024),
    PopartConv(name="popart-conv-64x64", input_width=64, input_height=64),
    PopartConv(name="popart-conv-480x270-bs4", input_width=480, input_height=270, batch_size=4),
    PopartConv(),
]
MODES = ("inference", "evaluation", "training")


def _cases() -> Dict[str, Any]:
    return {
        f"{config.name}-{mode}": dataclasses.replace(config, mode=mode)
        for config in CONFIGS
        for mode in MODES
    }


class PopartGraphs(Family):
    """Both PopART kernels in each mode, at several sizes."""

    title = "PopART graphs"
    unit = "items/s"
    usual = tuple(
        f"{name}-{mode}"
        for name in ("popart-lstm-t10-bs8-h256", "popart-conv-480x270-bs4")
        for mode in ("inference", "training")
    )
    devices = ("cpu", "cuda")

    @classmethod
    def names(cls) -> List[str]:
        return list(_cases())

    def __init__(self, conditions: Conditions) -> None:
        super().__init__(conditions)
        self.host = OnnxHost(conditions.device)

    def open(self, name: str) -> Case:
        config = dataclasses.replace(_cases()[name], precision=self.conditions.precision)
        chosen = self._step(config, "auto").describe()
        where = self.conditions.device.kind
        make = partial(module_program, config, self.conditions.dtype, where)
        peers: Dict[str, Callable[[], Program]] = {"torch module": partial(make, False)}
        if isinstance(config, PopartConv):
            peers["channels last"] = partial(make, True)
        if self.conditions.on_gpu:
            peers["CUDA graph"] = partial(make, isinstance(config, PopartConv), graphs=True)
        if config.mode != "training" and chosen["engine"] != RUNTIME:
            peers["ONNX Runtime, f32"] = partial(self._ours, config, RUNTIME)
        if self.conditions.own and chosen["engine"] == RUNTIME:
            peers["ours, engine=torch"] = partial(self._ours, config, "torch")
        own = partial(self._ours, config, "auto")
        return Case(float(config.batch_size), chosen["precision"], own, peers)

    def _step(self, config: Any, engine: str) -> OnnxStep:
        network = lstm if isinstance(config, PopartLstm) else conv
        config = dataclasses.replace(config, engine=engine)
        return self.host.loop(lambda dtype: network(config, dtype), config, config.feed(DATA))

    def _ours(self, config: Any, engine: str) -> Program:
        """Return the benchmark's own step."""
        step = self._step(config, engine)
        if step.describe()["engine"] == RUNTIME:
            self.conditions.require_onnxruntime_level()
        step.build()
        step.compile()
        return step.engine.run


def module_program(
    config: Any, dtype_name: str, device: str, channels_last: bool, graphs: bool = False
) -> Program:
    """Return the PyTorch program that a user would write for the same computation.

    ``graphs``: run each batch as one CUDA graph.
    """
    import torch

    from ipubench.fixtures.runtimes.torch.host.cuda_graph import record

    dtype = getattr(torch, dtype_name)
    recurrent = isinstance(config, PopartLstm)
    module, shape, label_shape = _lstm_module(config) if recurrent else _conv_module(config)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    module = module.to(device, dtype, memory_format=layout)
    inputs = [
        torch.randn(shape, device=device).to(dtype).contiguous(memory_format=layout)
        for _ in range(BATCHES)
    ]
    labels = [torch.randint(0, 2, label_shape, device=device) for _ in range(BATCHES)]
    if not recurrent:
        labels = [value.to(dtype).contiguous(memory_format=layout) for value in labels]

    def loss_of(output: Any, label: Any) -> Any:
        if recurrent:
            return torch.nn.functional.cross_entropy(
                output.flatten(0, 1), label.flatten(), reduction="sum"
            )
        probabilities = torch.softmax(output.flatten(1), 1)
        return torch.nn.functional.mse_loss(probabilities, label.flatten(1), reduction="sum")

    optimizer = torch.optim.SGD(module.parameters(), lr=config.learning_rate)

    def forward(index: int) -> Any:
        output = module(inputs[index])
        output = output[0] if recurrent else output
        return output if config.mode == "inference" else loss_of(output, labels[index])

    def batch(index: int) -> None:
        if config.mode == "training":
            optimizer.zero_grad()
            forward(index).backward()
            optimizer.step()
        else:
            forward(index)

    with torch.inference_mode(config.mode != "training"):
        runs: List[Callable[[], Any]] = [partial(batch, index) for index in range(BATCHES)]
        if graphs:
            runs = [record(run).replay for run in runs]

    def program(count: int) -> None:
        with torch.inference_mode(config.mode != "training"):
            for index in range(count):
                runs[index % BATCHES]()
        if device == "cuda":
            torch.cuda.synchronize()

    return program


def _lstm_module(config: PopartLstm) -> Tuple[Any, Tuple[int, ...], Tuple[int, ...]]:
    """Return the module, and the shapes of its inputs and labels."""
    import torch

    module = torch.nn.LSTM(config.hidden_size, config.hidden_size, bias=False)
    for weight in module.parameters():
        # The kernel has the same gates: closed gates leave subnormal numbers, which make a float32
        # product up to three times slower.
        torch.nn.init.normal_(weight)
    shape = (config.timesteps, config.batch_size, config.hidden_size)
    return module, shape, shape[:2]


def _conv_module(config: PopartConv) -> Tuple[Any, Tuple[int, ...], Tuple[int, ...]]:
    """Return the module, and the shapes of its inputs and labels."""
    import torch

    module = torch.nn.Conv2d(
        config.channel_size,
        config.filter_number,
        config.kernel_size,
        stride=config.stride,
        padding=config.padding,
    )
    shape = (config.batch_size, config.channel_size, config.input_height, config.input_width)
    return module, shape, config.output_shape
