"""Replaces the batch norms of a network.

Imported only if PyTorch is loaded already, because a module class needs it.
"""

from __future__ import annotations

import torch
from torch import nn

from ipubench.models.torch.architectures import Norm
from ipubench.models.torch.layers import replace_layer


class ChannelGroupNorm(nn.Module):
    """nn.GroupNorm, computed from the mean and the variance of each channel.

    images [N, C, H, W] -> [N, C, H, W]. Weight and bias [C] are per channel, as in nn.GroupNorm.
    ``strided``: channel c belongs to group c % groups, not to c // (channels / groups).
    """

    def __init__(self, groups: int, channels: int, eps: float, strided: bool = False) -> None:
        super().__init__()
        self.groups = groups
        self.channels = channels
        self.eps = eps
        self.strided = strided
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the normalised images.

        The group's statistics are computed from each channel's mean and variance, so that no tensor
        is reordered, and no large squares are subtracted from each other.
        """
        of_group = self.channels // self.groups
        shape = (-1, of_group, self.groups) if self.strided else (-1, self.groups, of_group)
        members = 1 if self.strided else 2  # the axis of a group's channels
        means = images.mean(dim=(2, 3), keepdim=True)
        centred = images - means
        squares = (centred * centred).mean(dim=(2, 3))
        off = means.view(shape) - means.view(shape).mean(members, keepdim=True)
        variance = (squares.view(shape) + off * off).mean(members, keepdim=True)
        scale = self.weight.view(shape) * torch.rsqrt(variance + self.eps)
        shift = self.bias.view(shape) + scale * off
        per_channel = (-1, self.channels, 1, 1)
        return centred * scale.view(per_channel) + shift.view(per_channel)


def expand_group_norms(network: nn.Module) -> None:
    """Replace each nn.GroupNorm of ``network`` by elementary operations, in place."""
    for path, layer in list(network.named_modules()):
        if isinstance(layer, nn.GroupNorm):
            expanded = ChannelGroupNorm(layer.num_groups, layer.num_channels, layer.eps)
            expanded.load_state_dict(layer.state_dict())
            replace_layer(network, path, expanded.to(layer.weight.dtype))


def apply_norm(network: nn.Module, norm: Norm) -> None:
    """Apply ``norm`` to each nn.BatchNorm2d of ``network``, in place.

    ``batch`` keeps them and sets their momentum. ``group`` replaces them by group norms with
    weights 1 and biases 0, ``none`` by nothing: the convolution before still has no bias. Raises
    ValueError if the number of groups does not divide the channels of a layer.
    """
    for path, layer in list(network.named_modules()):
        if not isinstance(layer, nn.BatchNorm2d):
            continue
        if norm.kind == "batch":
            layer.momentum = norm.momentum
        elif norm.kind == "group":
            replace_layer(network, path, _group_norm(norm, path, layer.num_features))
        else:
            replace_layer(network, path, nn.Identity())


def _group_norm(norm: Norm, path: str, channels: int) -> nn.Module:
    if channels % norm.groups:
        raise ValueError(
            f"norm_num_groups={norm.groups} does not divide the {channels} channels of layer {path}"
        )
    if norm.strided:
        return ChannelGroupNorm(norm.groups, channels, norm.eps, strided=True)
    return nn.GroupNorm(norm.groups, channels, norm.eps)
