"""The image classification networks, and the replacements of their norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict


@dataclass(frozen=True)
class Architecture:
    """The source of a network and its published weights, and its image size."""

    family: str  # torchvision, or the module of this package that has the network
    variant: str  # function of torchvision.models, or variant of the network
    image_size: int = 224
    # Address of the first weights that were published, as in the original program. The name ends
    # in the beginning of the file's SHA-256.
    pretrained: str = ""
    gain: float = 2.0  # of random weights; a ResNet adds up too many branches for more than 1
    # The same network elsewhere, for comparison by scripts/compare_peers.
    in_torchvision: str = ""  # unless the network is torchvision's own
    in_timm: str = ""


TORCHVISION = "https://download.pytorch.org/models/"
TIMM = "https://github.com/rwightman/pytorch-image-models/releases/download/v0.1-weights/"

ARCHITECTURES: Dict[str, Architecture] = {
    "resnet18": Architecture(
        "torchvision", "resnet18", pretrained=TORCHVISION + "resnet18-f37072fd.pth", gain=1.0
    ),
    "resnet34": Architecture(
        "torchvision", "resnet34", pretrained=TORCHVISION + "resnet34-b627a593.pth", gain=1.0
    ),
    "resnet50": Architecture(
        "torchvision", "resnet50", pretrained=TORCHVISION + "resnet50-0676ba61.pth", gain=1.0
    ),
    "resnet101": Architecture(
        "torchvision", "resnet101", pretrained=TORCHVISION + "resnet101-63fe2227.pth", gain=1.0
    ),
    "resnet152": Architecture(
        "torchvision", "resnet152", pretrained=TORCHVISION + "resnet152-394f9c45.pth", gain=1.0
    ),
    "resnext50": Architecture(
        "torchvision",
        "resnext50_32x4d",
        pretrained=TORCHVISION + "resnext50_32x4d-7cdf4587.pth",
        gain=1.0,
    ),
    "resnext101": Architecture(
        "torchvision",
        "resnext101_32x8d",
        pretrained=TORCHVISION + "resnext101_32x8d-8ba56ff5.pth",
        gain=1.0,
    ),
    "mobilenet": Architecture(
        "torchvision",
        "mobilenet_v2",
        pretrained=TORCHVISION + "mobilenet_v2-b0353104.pth",
        in_timm="mobilenetv2_100",
    ),
    "mobilenet-v3-small": Architecture(
        "mobilenet_v3",
        "mobilenet_v3_small",
        in_torchvision="mobilenet_v3_small",
        in_timm="mobilenetv3_small_100",
    ),
    "mobilenet-v3-large": Architecture(
        "mobilenet_v3",
        "mobilenet_v3_large",
        in_torchvision="mobilenet_v3_large",
        in_timm="mobilenetv3_large_100",
    ),
    # Weights trained in TensorFlow with AutoAugment, as timm publishes them for PyTorch.
    "efficientnet-b0": Architecture(
        "efficientnet",
        "b0",
        pretrained=TIMM + "tf_efficientnet_b0_aa-827b6e33.pth",
        in_torchvision="efficientnet_b0",
        in_timm="tf_efficientnet_b0",
    ),
    "efficientnet-b4": Architecture(
        "efficientnet",
        "b4",
        image_size=380,
        pretrained=TIMM + "tf_efficientnet_b4_aa-818f208c.pth",
        in_torchvision="efficientnet_b4",
        in_timm="tf_efficientnet_b4",
    ),
}


@dataclass(frozen=True)
class Norm:
    """The normalisation layers of a network; all except ``batch`` replace its batch norms."""

    kind: str = "batch"  # batch, group or none
    groups: int = 32
    eps: float = 1e-5  # of a group norm
    strided: bool = False  # channel c is in group c % groups, not in c // (channels / groups)
    momentum: float = 0.1  # of a batch norm


BATCH_NORM = Norm()
