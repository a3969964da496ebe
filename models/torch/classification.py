"""Image classification networks in PyTorch: [N, 3, S, S] images to [N, 1000] logits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Dict

from models.torch.torchvision_import import import_torchvision

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Architecture:
    """Where a network comes from and the image size it takes."""

    builder: str  # function of torchvision.models
    image_size: int = 224


ARCHITECTURES: Dict[str, Architecture] = {
    "resnet18": Architecture("resnet18"),
    "resnet34": Architecture("resnet34"),
    "resnet50": Architecture("resnet50"),
    "resnet101": Architecture("resnet101"),
    "resnet152": Architecture("resnet152"),
}


@dataclass(frozen=True)
class Norm:
    """The normalisation layers of a network; anything but ``batch`` replaces its batch norms."""

    kind: str = "batch"  # batch, group or none
    groups: int = 32
    eps: float = 1e-5  # of a group norm
    strided: bool = False  # channel c is in group c % groups, not in c // (channels / groups)
    momentum: float = 0.1  # of a batch norm


def build_classifier(
    model: str,
    *,
    random_weights: bool = True,
    weights: str = "",
    seed: int = 0,
    norm: Norm = Norm(),
    expand_ratio: int = 6,
    group_dim: int = 1,
    input_padding: bool = False,
) -> nn.Module:
    """Build a network in evaluation mode, float32.

    ``weights`` is the path of a state dictionary; without it the weights are seeded random numbers
    or, with ``random_weights`` false, torchvision's pretrained ones from the local torch cache. A
    file that is missing or does not fit raises ValueError. The caller's random state is kept.
    """
    import torch

    torchvision = import_torchvision()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = getattr(torchvision.models, ARCHITECTURES[model].builder)(weights=None)
    if weights or not random_weights:
        path = Path(weights) if weights else pretrained_path(model)
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            network.load_state_dict(state)
        except Exception as error:
            raise ValueError(
                f"the weights {path} cannot be loaded into {model}: {error}"
            ) from error
    return network.eval()


def pretrained_path(model: str) -> Path:
    """Return the pretrained weights' file in the local torch cache; ValueError if it is missing."""
    import torch

    torchvision = import_torchvision()
    url = torchvision.models.get_model_weights(ARCHITECTURES[model].builder).DEFAULT.url
    path = Path(str(torch.hub.get_dir())) / "checkpoints" / str(url).rsplit("/", 1)[-1]
    if not path.is_file():
        raise ValueError(
            f"the pretrained weights of {model} are not in the local torch cache ({path.name} is "
            f"missing); put them there, or use --set=weights=PATH or --set=random_weights=true"
        )
    return path
