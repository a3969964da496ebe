"""The named networks' blocks, units and sizes, without a framework.

The names are those of the layers in the original program, a Keras model. A unit has the name of its
first layer, so a pipeline can be split at all but the first.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from ipubench.models.tensorflow.cnn.blocks import EXPANSION, ResidualBlock, residual_blocks

#: ResNet -> blocks of its four stages.
RESNETS: Dict[str, Tuple[int, ...]] = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
}
#: Networks whose blocks have three convolutions, with a wider last one.
BOTTLENECKS = ("resnet50",)
STEM_CHANNELS = 64
#: ResNet for small images -> blocks of each of its three stages.
CIFAR_RESNETS: Dict[str, int] = {
    "cifar_resnet8": 1,
    "cifar_resnet20": 3,
    "cifar_resnet32": 5,
    "cifar_resnet44": 7,
    "cifar_resnet56": 9,
}
CIFAR_STAGES = 3
CIFAR_STEM_CHANNELS = 16
TOYS = ("toy_model", "toy_model_bn")
TOY_CHANNELS = (4, 8)  # of the two convolutions
TOY_KERNEL = 3  # of the first, which does not pad; the second's is 1
TOY_POOL = 5
MODEL_NAMES: Tuple[str, ...] = (*CIFAR_RESNETS, *RESNETS, *TOYS)


def resnet_blocks(model_name: str) -> List[ResidualBlock]:
    """Return the blocks of resnet18, resnet34 or resnet50, in order."""

    def named(stage: int, index: int, stride: int) -> Tuple[str, Tuple[str, str]]:
        path = f"conv{stage + 2}_block{index + 1}"
        return path, (f"{path}_1_conv", f"{path}_out")

    expansion = EXPANSION if model_name in BOTTLENECKS else 1
    return residual_blocks(RESNETS[model_name], STEM_CHANNELS, expansion, named)


def cifar_blocks(model_name: str) -> List[ResidualBlock]:
    """Return the blocks of a cifar_resnet, in order."""

    def named(stage: int, index: int, stride: int) -> Tuple[str, Tuple[str, str]]:
        path = f"conv{stage + 2}_block{index + 1}"
        first_layer = f"{path}_layer1_conv{'_ds' if stride > 1 else ''}"
        return path, (first_layer, f"{path}_post_addition_relu")

    counts = [CIFAR_RESNETS[model_name]] * CIFAR_STAGES
    return residual_blocks(counts, CIFAR_STEM_CHANNELS, 1, named)


def toy_features(height: int, width: int) -> int:
    """Return the features of a toy model's dense layer; 0 for images that are too small."""
    for kernel in (TOY_KERNEL, 1):
        height, width = (max(0, side - kernel + 1) // TOY_POOL for side in (height, width))
    return height * width * TOY_CHANNELS[1]


def unit_names(model_name: str) -> List[str]:
    """Return the names of a network's units, in order."""
    if model_name in RESNETS:
        inner = [name for block in resnet_blocks(model_name) for name in block.units]
        return ["conv1_conv", "pool1_pad", *inner, "avg_pool", "top"]
    if model_name in CIFAR_RESNETS:
        inner = [name for block in cifar_blocks(model_name) for name in block.units]
        return ["conv1_conv", *inner, "avg_pool", "top"]
    names: List[str] = []
    for index, pool in enumerate(("max_pooling2d", "max_pooling2d_1")):
        names += [f"conv2d_{index}", pool]
        if model_name == "toy_model_bn":
            names.append(f"bn_{index}")
    return [*names, "flatten", "top"]


def norm_channels(model_name: str) -> List[int]:
    """Return the distinct numbers of channels of a network's norms, in ascending order."""
    if model_name in RESNETS:
        blocks = resnet_blocks(model_name)
        return sorted({STEM_CHANNELS, *(n for b in blocks for n in (b.filters, b.outputs))})
    if model_name in CIFAR_RESNETS:
        return sorted({block.filters for block in cifar_blocks(model_name)})
    return list(TOY_CHANNELS) if model_name == "toy_model_bn" else []
