"""PyTorch's classification networks compared with published figures and independent code."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.models.torch.architectures import ARCHITECTURES, BATCH_NORM, Norm
from ipubench.models.torch.classification import _untrained, build_classifier, pretrained_path
from tests.doubles import pytorch_110
from tests.support.threads import torch_on_one_thread

pytestmark = pytest.mark.framework

# Published with torchvision's and timm's weights; MobileNet v3 has torchvision's layers.
PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnext50": 25_028_904,
    "resnext101": 88_791_336,
    "mobilenet": 3_504_872,
    "mobilenet-v3-small": 2_542_856,
    "mobilenet-v3-large": 5_483_032,
    "efficientnet-b0": 5_288_548,
    "efficientnet-b4": 19_341_616,
}
# Stem, then (blocks, kernel, channels) for each stage, then head: table 1 of the paper, and for b4
# its blocks times 1.8, rounded up, and its channels times 1.4, to the nearest multiple of 8.
EFFICIENTNETS: Dict[str, Tuple[int, List[Tuple[int, int, int]], int]] = {
    "efficientnet-b0": (
        32,
        [(1, 3, 16), (2, 3, 24), (2, 5, 40), (3, 3, 80), (3, 5, 112), (4, 5, 192), (1, 3, 320)],
        1280,
    ),
    "efficientnet-b4": (
        48,
        [(2, 3, 24), (4, 3, 32), (4, 5, 56), (6, 3, 112), (6, 5, 160), (8, 5, 272), (2, 3, 448)],
        1792,
    ),
}
GROUPED = Norm("group", groups=4, eps=1e-3)


@pytest.fixture(scope="module")
def torch() -> Any:
    return torch_on_one_thread()


@pytest.fixture(scope="module")
def torchvision(torch: Any) -> Any:
    from ipubench.models.torch.torchvision_import import import_torchvision

    return import_torchvision()


@pytest.fixture(scope="module")
def timm(torchvision: Any) -> Any:
    return pytest.importorskip("timm", reason="needs timm: pip install timm")


@lru_cache(maxsize=None)
def without_weights(
    model: str, norm: Norm = BATCH_NORM, expand_ratio: int = 6, group_dim: int = 1
) -> Any:
    """A network with shapes only, for tests that do not change it."""
    import torch

    from ipubench.models.torch.norms import apply_norm

    with torch.device("meta"):
        network = _untrained(model, expand_ratio, group_dim)
        apply_norm(network, norm)
    return network.eval()


def images(torch: Any, size: int = 64, batch: int = 2) -> Any:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


def run(torch: Any, module: Any, inputs: Any) -> Any:
    with torch.no_grad():
        return module.eval()(inputs)


def error(found: Any, expected: Any) -> float:
    """Relative error by norm."""
    return float((found - expected).norm() / expected.norm())


def vary_affine(torch: Any, layer: Any, generator: Any) -> Any:
    with torch.no_grad():
        layer.weight.uniform_(0.5, 1.5, generator=generator)
        layer.bias.uniform_(-0.2, 0.2, generator=generator)
    return layer


def vary_norms(torch: Any, module: Any) -> Any:
    """Give all norms weights and biases, and batch norms a batch's statistics."""
    generator = torch.Generator().manual_seed(2)
    for layer in module.modules():
        if getattr(layer, "weight", None) is not None and layer.weight.dim() == 1:
            vary_affine(torch, layer, generator)
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
    with torch.no_grad():
        module.train()(images(torch, batch=4))
    return module.eval()


def parameters(module: Any) -> int:
    return sum(weight.numel() for weight in module.parameters())


def test_every_architecture_is_counted_here() -> None:
    assert list(ARCHITECTURES) == list(PARAMETERS)


@pytest.mark.parametrize("model", PARAMETERS)
def test_parameter_counts_are_the_published_ones(model: str, torch: Any) -> None:
    assert parameters(without_weights(model)) == PARAMETERS[model]


def efficientnet_parameters(model: str, expand: int, group_dim: int) -> int:
    """Count from the table: weights of each convolution, and 2 per channel of each norm."""

    def depthwise(channels: int, kernel: int) -> int:
        groups = max(channels // group_dim, 1)
        return channels * (channels // groups) * kernel**2

    def squeeze_excite(channels: int, squeezed: int) -> int:
        return channels * squeezed + squeezed + squeezed * channels + channels

    stem, stages, head = EFFICIENTNETS[model]
    count = 3 * stem * 3**2 + 2 * stem
    inputs = stem
    for index, (blocks, kernel, outputs) in enumerate(stages):
        for _ in range(blocks):
            inner = inputs
            if index > 0:
                inner = inputs * expand
                count += inputs * inner + 2 * inner
            count += depthwise(inner, kernel) + 2 * inner
            count += squeeze_excite(inner, inputs // 4)
            count += inner * outputs + 2 * outputs
            inputs = outputs
    return count + inputs * head + 2 * head + head * 1000 + 1000


@pytest.mark.parametrize("model", EFFICIENTNETS)
def test_modified_efficientnets_have_the_parameters_of_their_table(model: str, torch: Any) -> None:
    assert efficientnet_parameters(model, expand=6, group_dim=1) == PARAMETERS[model]
    built = without_weights(model, norm=GROUPED, expand_ratio=4, group_dim=16)
    assert parameters(built) == efficientnet_parameters(model, expand=4, group_dim=16)
    assert parameters(built) != PARAMETERS[model]


@pytest.mark.parametrize(
    ("model", "least", "most"),
    # Billions of multiply-adds: torchvision's 4.09; the EfficientNet paper's 0.39 and 4.2.
    [("resnet50", 4.08, 4.10), ("efficientnet-b0", 0.38, 0.40), ("efficientnet-b4", 4.2, 4.5)],
)
def test_flop_are_the_published_ones(model: str, least: float, most: float, torch: Any) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    size = ARCHITECTURES[model].image_size
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        run(torch, without_weights(model), torch.zeros(1, 3, size, size))
    assert least < counter.get_total_flops() / 2e9 < most


# float32 with another order of sums; measured: below 1e-6.
TOLERANCE = 1e-5


@pytest.mark.numeric
@pytest.mark.parametrize("variant", ["b0", pytest.param("b4", marks=pytest.mark.nightly)])
def test_efficientnet_agrees_with_timm(variant: str, torch: Any, timm: Any) -> None:
    from ipubench.models.torch.efficientnet import EfficientNet

    # With padding like 380's: the third convolution with a stride has an odd number of inputs, the
    # others even numbers.
    size = 76
    theirs = vary_norms(torch, timm.create_model(f"tf_efficientnet_{variant}"))
    ours = EfficientNet(variant, size)
    ours.load_state_dict(theirs.state_dict())
    inputs = images(torch, size)
    assert error(run(torch, ours, inputs), run(torch, theirs, inputs)) < TOLERANCE


@pytest.mark.numeric
@pytest.mark.parametrize("variant", ["small", "large"])
def test_mobilenet_v3_agrees_with_timm(variant: str, torch: Any, timm: Any) -> None:
    theirs = timm.create_model(f"mobilenetv3_{variant}_100", bn_eps=1e-3)
    vary_norms(torch, theirs)
    ours = build_classifier(f"mobilenet-v3-{variant}")
    values = [
        value.reshape(to.shape)
        for value, to in zip(theirs.state_dict().values(), ours.state_dict().values())
    ]
    ours.load_state_dict(dict(zip(ours.state_dict(), values)))
    inputs = images(torch, 96)
    assert error(run(torch, ours, inputs), run(torch, theirs, inputs)) < TOLERANCE


def block(path: str, *layers: str) -> List[str]:
    return [f"{path}/{layer}" for layer in layers]


BASIC = ("conv1", "bn1", "relu", "conv2", "bn2")
BOTTLENECK = (*BASIC, "conv3", "bn3")
DOWNSAMPLE = ("downsample/0", "downsample/1")
RESNET = ["conv1", "bn1", "relu", "maxpool", "avgpool", "fc"]
MOBILENET_V3 = [f"mb_block/{index}/seq/0" for index in (2, 7)]
EFFICIENTNET = [
    "conv_stem", "bn1", "blocks/3/0/conv_pw", "blocks/3/0/bn2", "blocks/1/1/conv_pw",
    "blocks/4/5/conv_pw", "conv_head", "bn2", "global_pool", "classifier",
]  # fmt: skip
SPLITS = {
    "resnet18": [*RESNET, *block("layer1/1", *BASIC), *block("layer4/0", *BASIC, *DOWNSAMPLE)],
    "resnet50": [*RESNET, *block("layer1/0", *BOTTLENECK, *DOWNSAMPLE)],
    "resnet152": block("layer3/35", *BOTTLENECK),
    "resnext101": [*RESNET, *block("layer2/0", *BOTTLENECK, *DOWNSAMPLE)],
    "mobilenet-v3-small": MOBILENET_V3,
    "mobilenet-v3-large": [*MOBILENET_V3, "mb_block/11/seq/0"],
    # Only b4 has a sixth block in its fifth stage.
    "efficientnet-b0": [name for name in EFFICIENTNET if name != "blocks/4/5/conv_pw"],
    "efficientnet-b4": EFFICIENTNET,
}


@pytest.mark.parametrize("model", SPLITS)
def test_a_pipeline_can_be_split_at_the_names_of_the_original(model: str, torch: Any) -> None:
    from ipubench.fixtures.runtimes.torch.ipu.poptorch_options import split_pipeline

    class PopTorch:
        marked: List[Any] = []

        @classmethod
        def BeginBlock(cls, layer: Any, ipu_id: int) -> None:
            cls.marked.append(layer)

    built = without_weights(model)
    split_pipeline(PopTorch, built, SPLITS[model])
    named = dict(built.named_modules())
    assert PopTorch.marked == [named[name.replace("/", ".")] for name in SPLITS[model]]


# Folding acts on a pair of layers; tests/runtimes/torch/host/test_engines.py covers all networks.
FOLDED = ["resnet18", "mobilenet-v3-small"]


@pytest.mark.parametrize("model", FOLDED)
def test_folding_leaves_no_batch_norm_and_the_same_logits(model: str, torch: Any) -> None:
    """Equal in float64. In float32 deep random networks amplify rounding errors."""
    from ipubench.fixtures.runtimes.torch.host.engines import prepare

    built = vary_norms(torch, build_classifier(model)).double()
    inputs = images(torch, 32).double()
    folded = prepare(built, torch.float64, torch.float64, False)
    norms = [layer for layer in folded.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    assert norms == []
    assert error(run(torch, folded, inputs), run(torch, built, inputs)) < 1e-10


# Activations grow with the depth, and images become alike: the deepest network of each kind, and
# one for each way of drawing weights.
DEEPEST: Dict[str, List[str]] = {
    "resnet34": ["resnet18"],
    "resnet152": ["resnet50", "resnet101"],
    "resnext101": ["resnext50"],
    "mobilenet": [],
    "mobilenet-v3-small": [],
    "mobilenet-v3-large": [],
    "efficientnet-b4": ["efficientnet-b0"],
}


@pytest.mark.parametrize("model", DEEPEST)
def test_random_weights_fit_float16_and_distinguish_images(model: str, torch: Any) -> None:
    assert {ARCHITECTURES[other].gain for other in DEEPEST[model]} <= {ARCHITECTURES[model].gain}
    built = build_classifier(model)
    peaks: List[float] = []
    for layer in built.modules():
        if not list(layer.children()):
            layer.register_forward_hook(lambda _, __, output: peaks.append(output.abs().max()))
    one, other = run(torch, built, images(torch))
    assert max(peaks) < 65504 / 8
    assert error(one, other) > 1e-3


def group_norm(inputs: Any, groups: List[List[int]], eps: float, weight: Any, bias: Any) -> Any:
    """In float64: each image's channel groups, minus their mean, divided by their deviation."""
    outputs = np.empty_like(inputs)
    for index, image in enumerate(inputs):
        for channels in groups:
            values = image[channels]
            outputs[index, channels] = (values - values.mean()) / np.sqrt(values.var() + eps)
    return outputs * weight[:, None, None] + bias[:, None, None]


def batch_norm(inputs: Any, layer: Any) -> Any:
    mean, variance = float64(layer.running_mean), float64(layer.running_var)
    scaled = (inputs - mean[:, None, None]) / np.sqrt(variance + layer.eps)[:, None, None]
    return scaled * float64(layer.weight)[:, None, None] + float64(layer.bias)[:, None, None]


def float64(tensor: Any) -> Any:
    return tensor.detach().numpy().astype(np.float64)


# The 64 channels of resnet18's first norm, in groups of 8.
USUAL = [list(range(start, start + 8)) for start in range(0, 64, 8)]
STRIDED = [list(range(start, 64, 8)) for start in range(8)]
FORMULAS: List[Tuple[Norm, Callable[[Any, Any], Any]]] = [
    (Norm(), batch_norm),
    (
        Norm("group", 8, 0.1),
        lambda x, layer: group_norm(x, USUAL, 0.1, float64(layer.weight), float64(layer.bias)),
    ),
    (
        Norm("group", 8, 0.1, strided=True),
        lambda x, layer: group_norm(x, STRIDED, 0.1, float64(layer.weight), float64(layer.bias)),
    ),
    (Norm("none"), lambda x, layer: x),
]


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("norm", "formula"), FORMULAS, ids=["batch", "group", "strided-group", "none"]
)
def test_norms_follow_their_formulas(
    norm: Norm, formula: Callable[[Any, Any], Any], torch: Any
) -> None:
    built = vary_norms(torch, build_classifier("resnet18", norm=norm))
    seen: List[Any] = []
    # Copies, because the following activation works in place.
    built.bn1.register_forward_hook(
        lambda layer, inputs, output: seen.extend((inputs[0].clone(), output.clone()))
    )
    run(torch, built, images(torch))
    inputs, output = (float64(tensor) for tensor in seen)
    assert np.abs(output - formula(inputs, built.bn1)).max() < 1e-4


def test_a_strided_group_norm_is_the_usual_one_on_permuted_channels(torch: Any) -> None:
    from ipubench.models.torch.norms import ChannelGroupNorm

    generator = torch.Generator().manual_seed(3)
    strided = vary_affine(torch, ChannelGroupNorm(4, 24, 1e-3, strided=True), generator)
    usual = torch.nn.GroupNorm(4, 24, 1e-3)
    order = [channel for group in range(4) for channel in range(group, 24, 4)]
    with torch.no_grad():
        usual.weight.copy_(strided.weight[order])
        usual.bias.copy_(strided.bias[order])
    inputs = torch.randn(3, 24, 5, 7, generator=generator)
    assert error(run(torch, strided, inputs)[:, order], run(torch, usual, inputs[:, order])) < 1e-6


@pytest.mark.numeric
def test_expanded_group_norms_are_the_usual_ones(torch: Any) -> None:
    from ipubench.models.torch.norms import expand_group_norms

    built = vary_norms(torch, build_classifier("resnet18", norm=GROUPED))
    wanted = run(torch, built, images(torch))
    expand_group_norms(built)
    assert not any(isinstance(layer, torch.nn.GroupNorm) for layer in built.modules())
    assert error(run(torch, built, images(torch)), wanted) < 1e-5


@pytest.mark.parametrize(
    ("norm", "kind"),
    [
        (GROUPED, "GroupNorm"),
        (Norm("group", 4, 1e-3, strided=True), "ChannelGroupNorm"),
        (Norm("none"), "Identity"),
    ],
    ids=["group", "strided-group", "none"],
)
@pytest.mark.parametrize("model", ["resnet50", "mobilenet-v3-small", "efficientnet-b0"])
def test_every_batch_norm_is_replaced(model: str, norm: Norm, kind: str, torch: Any) -> None:
    before, after = without_weights(model), without_weights(model, norm=norm)
    layers = dict(after.named_modules())
    paths = [
        path for path, layer in before.named_modules() if isinstance(layer, torch.nn.BatchNorm2d)
    ]
    assert paths and {type(layers[path]).__name__ for path in paths} == {kind}
    if norm.kind == "group":
        assert {layers[path].eps for path in paths} == {1e-3}


def test_batch_norms_take_the_momentum_and_keep_their_epsilon(torch: Any) -> None:
    for model, eps in (("resnet18", 1e-5), ("efficientnet-b0", 1e-3), ("mobilenet-v3-small", 1e-3)):
        built = build_classifier(model, norm=Norm(momentum=0.37, eps=0.5))
        norms = [layer for layer in built.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
        assert {(layer.momentum, layer.eps) for layer in norms} == {(0.37, eps)}


def test_groups_that_do_not_divide_the_channels_are_one_message(torch: Any) -> None:
    message = "norm_num_groups=32 does not divide the 16 channels of layer features.1.conv.2"
    with pytest.raises(ValueError, match=message):
        build_classifier("mobilenet", norm=Norm("group", 32))
    with pytest.raises(ValueError, match="divisible by groups"):
        build_classifier("efficientnet-b0", group_dim=20)


@pytest.mark.parametrize("model", ["resnet18", "mobilenet-v3-small", "efficientnet-b0"])
def test_input_padding_widens_the_first_convolution_and_keeps_the_results(
    model: str, torch: Any, tmp_path: Path
) -> None:
    plain = vary_norms(torch, build_classifier(model, seed=4))
    torch.save(plain.state_dict(), tmp_path / "weights.pt")
    padded = build_classifier(model, weights=str(tmp_path / "weights.pt"), input_padding=True)
    convolutions = {
        path: layer for path, layer in padded.named_modules() if isinstance(layer, torch.nn.Conv2d)
    }
    path, first = next(iter(convolutions.items()))
    assert first.in_channels == first.weight.shape[1] == 4
    assert first.weight[:, :3].any() and not first.weight[:, 3].any()
    assert path.endswith(".conv")
    others = set(dict(plain.named_modules())) - {path[: -len(".conv")]}
    assert others < set(dict(padded.named_modules()))
    assert error(run(torch, padded, images(torch)), run(torch, plain, images(torch))) < TOLERANCE


def test_weights_are_seeded_and_the_random_state_is_kept(torch: Any) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for model in ("resnet18", "mobilenet-v3-small", "efficientnet-b0"):
        built = [build_classifier(model, seed=seed).state_dict() for seed in (0, 0, 1)]
        assert torch.equal(torch.get_rng_state(), before)
        for one, same in zip(built[0].values(), built[1].values()):
            assert torch.equal(one, same)
        first = next(iter(built[0]))
        assert not torch.equal(built[0][first], built[2][first])


def test_the_oldest_pytorch_of_poptorch_builds_the_same_network(
    torch: Any, torchvision: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = build_classifier("resnet18", seed=3)
    path = tmp_path / "weights.pt"
    torch.save(expected.state_dict(), path)
    pytorch_110.install(monkeypatch)
    built = build_classifier("resnet18", seed=3)
    for one, same in zip(built.state_dict().values(), expected.state_dict().values()):
        assert torch.equal(one, same)
    # Its torch.load would run the file's code.
    with pytest.raises(ValueError, match="1.13 .*--set=random_weights=true"):
        build_classifier("resnet18", weights=str(path))


def test_weights_come_from_a_file_and_a_bad_one_is_one_message(torch: Any, tmp_path: Path) -> None:
    source = vary_norms(torch, build_classifier("resnet18", seed=3, norm=GROUPED))
    torch.save(source.state_dict(), tmp_path / "weights.pt")
    loaded = build_classifier("resnet18", weights=str(tmp_path / "weights.pt"), norm=GROUPED)
    assert torch.equal(run(torch, loaded, images(torch)), run(torch, source, images(torch)))
    (tmp_path / "bad.pt").write_bytes(b"no weights")
    for model, name in (
        *(("resnet18", name) for name in ("bad.pt", "missing.pt", "weights.pt")),
        ("resnet34", "weights.pt"),
    ):
        with pytest.raises(ValueError, match=f"{name} .* {model}: "):
            build_classifier(model, weights=str(tmp_path / name))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("resnet18", "resnet18-f37072fd.pth"),
        ("efficientnet-b0", "tf_efficientnet_b0_aa-827b6e33.pth"),
    ],
)
def test_pretrained_weights_are_read_from_the_torch_cache(
    model: str, name: str, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = tmp_path / "hub" / "checkpoints" / name
    path.parent.mkdir(parents=True)
    source = build_classifier(model, seed=3)
    torch.save(source.state_dict(), path)
    assert pretrained_path(model) == path
    loaded = build_classifier(model, random_weights=False)
    for one, same in zip(loaded.parameters(), source.parameters()):
        assert torch.equal(one, same)


def test_the_addresses_of_other_weights_are_the_first_of_torchvision(torchvision: Any) -> None:
    for name, architecture in ARCHITECTURES.items():
        if architecture.family == "torchvision":
            weights = torchvision.models.get_model_weights(architecture.variant)
            assert (name, weights.IMAGENET1K_V1.url) == (name, architecture.pretrained)


def test_the_addresses_of_efficientnet_weights_are_timms(timm: Any) -> None:
    for variant in ("b0", "b4"):
        published = timm.models.get_pretrained_cfg(f"tf_efficientnet_{variant}.aa_in1k").url
        assert published == ARCHITECTURES[f"efficientnet-{variant}"].pretrained


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("resnet50", "hub/checkpoints; `python -m ipubench.models.torch fetch resnet50`"),
        ("efficientnet-b4", "`python -m ipubench.models.torch fetch efficientnet-b4`"),
        ("mobilenet-v3-large", "no pretrained weights .*mobilenet-v3-large"),
    ],
)
def test_missing_pretrained_weights_are_refused_with_an_alternative(
    model: str, message: str, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=f"{message}.*--set=random_weights=true"):
        build_classifier(model, random_weights=False)
