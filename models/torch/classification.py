"""Image classification networks in PyTorch: [N, 3, S, S] images to [N, 1000] logits."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipubench.models.torch.architectures import ARCHITECTURES, BATCH_NORM, Norm
from ipubench.models.torch.torchvision_import import import_torchvision

if TYPE_CHECKING:
    from torch import nn


# The advice in messages about missing weights.
_WITHOUT = "use --set=weights=PATH or --set=random_weights=true"


@dataclass(frozen=True)
class Described:
    """A network that a call builds: the arguments of :func:`build_classifier`."""

    model: str
    random_weights: bool = True
    weights: str = ""
    seed: int = 0
    norm: Norm = BATCH_NORM
    expand_ratio: int = 6
    group_dim: int = 1
    input_padding: bool = False

    def __call__(self) -> nn.Module:
        return build_classifier(**vars(self))


def build_classifier(
    model: str,
    *,
    random_weights: bool = True,
    weights: str = "",
    seed: int = 0,
    norm: Norm = BATCH_NORM,
    expand_ratio: int = 6,
    group_dim: int = 1,
    input_padding: bool = False,
) -> nn.Module:
    """Build a network in evaluation mode, float32.

    ``weights`` is the path of a state dictionary of this network. Without it the weights are seeded
    random numbers or, with ``random_weights`` false, the published ones from the local torch cache.
    ``expand_ratio`` and ``group_dim`` change an EfficientNet (see its class). ``input_padding``
    gives the first convolution a fourth, zero channel without changing the results.

    Raises ValueError for weights that are missing, do not fit or were never published, for groups
    that do not divide a layer's channels, and without torchvision for networks with its layers. The
    caller's random state does not change.
    """
    import torch

    from ipubench.models.torch.layers import initialise, pad_input
    from ipubench.models.torch.norms import apply_norm

    with torch.random.fork_rng(devices=[]):
        # The weights are drawn below; before PyTorch 2.0, where a device is no context, here too.
        meta: Any = torch.device("meta")
        with meta if hasattr(meta, "__enter__") else contextlib.nullcontext():
            network = _untrained(model, expand_ratio, group_dim)
        network.to_empty(device="cpu")
        # Only the CPU's generator: torch.manual_seed would also seed a GPU's.
        torch.default_generator.manual_seed(seed)
        initialise(network, ARCHITECTURES[model].gain)
    apply_norm(network, norm)
    if weights or not random_weights:
        if "weights_only" not in inspect.signature(torch.load).parameters:
            raise ValueError(
                f"PyTorch {torch.__version__} would run code that a file of weights contains; 1.13 "
                "(Poplar SDK 3.1) is the first that reads only weights; use "
                "--set=random_weights=true"
            )
        path = Path(weights) if weights else pretrained_path(model)
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            network.load_state_dict(state)
        except Exception as error:
            raise ValueError(
                f"the weights {path} cannot be loaded into {model}: {error}"
            ) from error
    if input_padding:
        pad_input(network)
    return network.eval()


def pretrained_path(model: str) -> Path:
    """Return the published weights' file in the local torch cache. Raises ValueError if missing."""
    if not ARCHITECTURES[model].pretrained:
        raise ValueError(f"no pretrained weights of {model} are published; {_WITHOUT}")
    path = place_of_weights(model)
    if not path.is_file():
        raise ValueError(
            f"the pretrained weights of {model} are not in {path.parent}; "
            f"`python -m ipubench.models.torch fetch {model}` downloads them, or {_WITHOUT}"
        )
    return path


def place_of_weights(model: str) -> Path:
    """Return the path that published weights have in the local torch cache."""
    import torch

    name = ARCHITECTURES[model].pretrained.rsplit("/", 1)[-1]
    return Path(str(torch.hub.get_dir())) / "checkpoints" / name


def _untrained(model: str, expand_ratio: int, group_dim: int) -> nn.Module:
    """Build a network with the batch norms of its publication."""
    architecture = ARCHITECTURES[model]
    variant = architecture.variant
    network: nn.Module
    if architecture.family == "efficientnet":
        from ipubench.models.torch.efficientnet import EfficientNet

        network = EfficientNet(variant, architecture.image_size, expand_ratio, group_dim)
    else:
        network = getattr(_torchvision_models(model), variant)()
    if architecture.family == "mobilenet_v3":
        from ipubench.models.torch.mobilenet_v3 import MobileNetV3

        network = MobileNetV3(network)
    return network


def _torchvision_models(model: str) -> Any:
    try:
        return import_torchvision().models
    except ImportError as error:
        import torch

        # Without a version, pip would install the newest with its PyTorch, but PopTorch needs its
        # own. No index has local versions such as 2.0.1+cpu; pip accepts one for 2.0.1.
        version = torch.__version__.partition("+")[0]
        raise ValueError(
            f"{model} has layers of torchvision, which cannot be imported: {error}; "
            f"pip install torchvision torch=={version} adds the one of this PyTorch"
        ) from error
