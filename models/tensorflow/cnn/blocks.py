"""The blocks of the networks and the names of their units, without a framework.

Layers are made from these blocks, and pipelines are split at the units' names.
"""

from __future__ import annotations

import difflib
import math
from string import ascii_lowercase
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from ipubench.models.published import STAGES, STEM_CHANNELS

#: Size of a ResNet -> blocks of its four stages.
BASIC: Dict[str, Tuple[int, ...]] = {
    "10": (1, 1, 1, 1),
    "18": (2, 2, 2, 2),
    "34": (3, 4, 6, 3),
}
BOTTLENECK: Dict[str, Tuple[int, ...]] = {
    "14": (1, 1, 1, 1),
    "26": (2, 2, 2, 2),
    "50": (3, 4, 6, 3),
    "101": (3, 4, 23, 3),
    "152": (3, 8, 36, 3),
}
RESNET_STEM_CHANNELS = 64
EXPANSION = 4  # ratio of a bottleneck block's outputs to its filters


class ResidualBlock(NamedTuple):
    """One block; ``filters`` are the channels of its 3 x 3 convolution without groups."""

    path: str
    inputs: int
    filters: int
    outputs: int
    stride: int
    first: bool  # of its stage
    #: The names of its units: everything up to the addition, and the ReLU after it.
    units: Tuple[str, str]


def residual_blocks(
    counts: Sequence[int],
    stem: int,
    expansion: int,
    named: Callable[[int, int, int], Tuple[str, Tuple[str, str]]],
) -> List[ResidualBlock]:
    """Return the blocks in order, with ``counts`` blocks per stage after a stem of ``stem``
    channels.

    Each stage has twice the filters of the previous one. ``named(stage, index, stride)`` returns a
    block's path and the names of its units; stages and blocks count from 0.
    """
    blocks: List[ResidualBlock] = []
    channels = stem
    for stage, count in enumerate(counts):
        filters = stem << stage
        outputs = filters * expansion
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            path, units = named(stage, index, stride)
            first = index == 0
            blocks.append(ResidualBlock(path, channels, filters, outputs, stride, first, units))
            channels = outputs
    return blocks


def resnet_blocks(size: str) -> List[ResidualBlock]:
    """Return the blocks of a ResNet or ResNeXt, in order."""

    def named(stage: int, index: int, stride: int) -> Tuple[str, Tuple[str, str]]:
        path = f"b{stage + 1}/{index}"
        return path, (path, f"{path}/relu")

    counts, expansion = (BASIC[size], 1) if size in BASIC else (BOTTLENECK[size], EXPANSION)
    return residual_blocks(counts, RESNET_STEM_CHANNELS, expansion, named)


#: The deepest EfficientNet that has a letter for each block of a stage.
MAX_DEPTH = len(ascii_lowercase) / max(stage.blocks for stage in STAGES)


class Shape(NamedTuple):
    """The differences between EfficientNets."""

    width: float  # multiplies the channels
    depth: float  # multiplies the blocks of a stage
    dropout: float
    expand_ratio: int
    group_dim: int  # channels per group of convolutions that are depthwise with 1
    squeeze_excite: bool
    # the probability to keep a branch in training falls from 1 to this over the blocks
    survival: float
    depth_divisor: int  # of all numbers of channels
    top_width: int
    activation: str

    def channels(self, count: int) -> int:
        """Return the scaled channels: a multiple of the divisor, at most 10% less."""
        wanted, divisor = count * self.width, self.depth_divisor
        rounded = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
        return rounded if rounded >= 0.9 * wanted else rounded + divisor


class EfficientNetBlock(NamedTuple):
    """One block; ``expand`` 1 means no expansion."""

    path: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    expand: int
    squeeze_excite: bool

    @property
    def residual(self) -> bool:
        """Whether its input is added to its output."""
        return self.stride == 1 and self.inputs == self.outputs

    @property
    def units(self) -> List[str]:
        """The names of its units: one for a residual block, otherwise one per layer."""
        if self.residual:
            return [self.path]
        expansion = [self.path] if self.expand != 1 else []
        squeeze_excite = [f"{self.path}/SE"] if self.squeeze_excite else []
        return [*expansion, f"{self.path}/b", *squeeze_excite, f"{self.path}/c"]


def efficientnet_blocks(shape: Shape) -> List[EfficientNetBlock]:
    """Return the blocks of an EfficientNet no deeper than MAX_DEPTH, in order."""
    blocks: List[EfficientNetBlock] = []
    channels = shape.channels(STEM_CHANNELS)
    for number, stage in enumerate(STAGES, 1):
        outputs = shape.channels(stage.channels)
        expand = shape.expand_ratio if stage.expands else 1
        for index in range(math.ceil(stage.blocks * shape.depth)):
            path = f"block{number}{ascii_lowercase[index]}"
            stride = stage.stride if index == 0 else 1
            blocks.append(
                EfficientNetBlock(
                    path, channels, outputs, stage.kernel, stride, expand, shape.squeeze_excite
                )
            )
            channels = outputs
    return blocks


def cut_at(names: Sequence[str], splits: Sequence[str]) -> List[int]:
    """Return the index of each split among the names of a network's units.

    Raises ValueError for a name that does not exist or is the first, and for names out of order.
    """
    cuts: List[int] = []
    possible = names[1:]
    listed = f"possible splits: {' '.join(possible)}"
    for name in splits:
        if name not in possible:
            near = difflib.get_close_matches(name, possible)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ValueError(f"pipeline split {name!r} does not exist{hint}\n{listed}")
        place = names.index(name)
        if cuts and place <= cuts[-1]:
            again = "is given twice" if splits.count(name) > 1 else "comes too late"
            raise ValueError(
                f"pipeline split {name!r} {again}: name each split once, in the network's order\n"
                f"{listed}"
            )
        cuts.append(place)
    return cuts
