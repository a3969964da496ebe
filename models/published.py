"""Numbers from papers, for networks in any framework.

EfficientNet: Tan and Le, arXiv 1905.11946. MEAN and DEVIATION are those of ImageNet's pixels scaled
to 0..1, in the order red, green, blue.
"""

from __future__ import annotations

from typing import Dict, NamedTuple

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
#: A pixel of 0..255 is normalised to ``pixel * SCALE - SHIFT``.
SCALE = tuple(1.0 / (255.0 * deviation) for deviation in DEVIATION)
SHIFT = tuple(mean / deviation for mean, deviation in zip(MEAN, DEVIATION))


class Stage(NamedTuple):
    """One row of table 1 of the paper. The first block has the stride, the others 1."""

    blocks: int
    kernel: int
    stride: int
    channels: int
    expands: bool = True  # the first stage's blocks have no expansion


STAGES = (
    Stage(1, 3, 1, 16, expands=False),
    Stage(2, 3, 2, 24),
    Stage(2, 5, 2, 40),
    Stage(3, 3, 2, 80),
    Stage(3, 5, 1, 112),
    Stage(4, 5, 2, 192),
    Stage(1, 3, 1, 320),
)
#: Before the first stage, and after the last one.
STEM_CHANNELS, HEAD_CHANNELS = 32, 1280


class Scale(NamedTuple):
    """The differences of an EfficientNet from the smallest, and its image size."""

    width: float
    depth: float
    dropout: float
    image_size: int


EFFICIENTNETS: Dict[str, Scale] = {
    "B0": Scale(1.0, 1.0, 0.2, 224),
    "B1": Scale(1.0, 1.1, 0.2, 240),
    "B2": Scale(1.1, 1.2, 0.3, 260),
    "B3": Scale(1.2, 1.4, 0.3, 300),
    "B4": Scale(1.4, 1.8, 0.4, 380),
    "B5": Scale(1.6, 2.2, 0.4, 456),
    "B6": Scale(1.8, 2.6, 0.5, 528),
    "B7": Scale(2.0, 3.1, 0.5, 600),
}
