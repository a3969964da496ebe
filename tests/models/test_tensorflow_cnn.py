"""TensorFlow's classification networks compared with published figures and independent code."""

from __future__ import annotations

import dataclasses
from functools import lru_cache, partial
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from ipubench.models.published import Stage
from ipubench.models.tensorflow.cnn import blocks as all_blocks
from ipubench.models.tensorflow.cnn.classification import Network, build_classifier, split_units
from ipubench.models.tensorflow.cnn.fold import fold, folded_norms
from ipubench.models.tensorflow.cnn.operations import (
    has_grouped_gradient,
)
from ipubench.models.tensorflow.cnn.run import ForwardPass
from tests.support.tensorflow_cnn import (
    compiler,
    copy_to_torch,
    draw_zeros,
    error,
    vary_norms,
    without_weights,
)

pytestmark = pytest.mark.framework

RESNET50 = Network("resnet", "50")
RESNET18 = Network("resnet", "18")
RESNEXT101 = Network("resnext", "101")
B0 = Network("efficientnet", "B0")
B4 = Network("efficientnet", "4")
MODIFIED_B4 = Network("efficientnet", "4", norm="group", groups=4, group_dim=16, expand_ratio=4)
# Small, with every kind of layer: dropout, drop-connect, squeeze-excite, all kinds of convolutions.
# Two of the seven stages: TWO_STAGES.
SHORT = Network("efficientnet", "B0", width_coefficient=0.25, classes=10)
SHORT_GROUPED = dataclasses.replace(SHORT, norm="group", groups=4, group_dim=8, expand_ratio=4)
# A first stage that does not widen, and a later one whose second block adds its input.
TWO_STAGES = (Stage(1, 3, 1, 16, expands=False), Stage(2, 5, 2, 24))


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="needs TensorFlow: make setup installs it")


@pytest.fixture(scope="module")
def built(tf: Any) -> Callable[[Network], Any]:
    """Build a network once for the tests that neither change nor run it."""

    @lru_cache(maxsize=None)
    def shaped(network: Network) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            draw_zeros(patch)
            return build_classifier(tf, network)

    return shaped


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")


@pytest.fixture(scope="module")
def torchvision(torch: Any) -> Any:
    from ipubench.models.torch.torchvision_import import import_torchvision

    return import_torchvision()


def images(size: int = 64, batch: int = 2, seed: int = 1) -> Any:
    values = np.random.default_rng(seed).standard_normal((batch, size, size, 3))
    return values.astype(np.float32)


def infer(classifier: Any, inputs: Any) -> Any:
    return classifier(inputs, ForwardPass(training=False))


def varied(tf: Any, network: Network, **options: Any) -> Any:
    classifier = build_classifier(tf, network, **options)
    vary_norms(classifier)
    return classifier


def size_of(variables: Any) -> int:
    return sum(int(np.prod(variable.shape)) for variable in variables)


# ---------------------------------------------------------------------- which networks there are


@pytest.mark.parametrize(
    ("network", "count"),
    [
        # Published with torchvision's and timm's weights.
        (Network("resnet", "34"), 21_797_672),
        (RESNET50, 25_557_032),
        (RESNEXT101, 44_177_704),
        (B0, 5_288_548),
        (B4, 19_341_616),
        # B0 without squeeze-excite, which has two dense layers per block, and without a wide top.
        (Network("efficientnet", "0", squeeze_excite=False), 5_288_548 - 636_540),
        (Network("efficientnet", "0", top_width=0), 5_288_548 - 1280 * (320 + 2) - 960 * 1000),
    ],
    ids=lambda value: str(value)[:40],
)
def test_parameters_as_published(
    built: Callable[[Network], Any], network: Network, count: int
) -> None:
    assert size_of(built(network).trainable_variables) == count


def test_parameters_of_the_modified_b4(built: Callable[[Network], Any]) -> None:
    # Blocks, kernels and channels of its stages: the paper's table times 1.8 and 1.4, rounded.
    stages = [(2, 3, 24), (4, 3, 32), (4, 5, 56), (6, 3, 112), (6, 5, 160), (8, 5, 272)]

    def parameters(group_dim: int, expand_ratio: int) -> int:
        total, inputs = 3 * 3 * 3 * 48 + 2 * 48, 48
        for stage, (blocks, kernel, outputs) in enumerate([*stages, (2, 3, 448)]):
            for _ in range(blocks):
                inner = inputs * (expand_ratio if stage else 1)
                if stage:
                    total += inputs * inner + 2 * inner
                per_group = inner // max(inner // group_dim, 1)
                total += kernel * kernel * per_group * inner + 2 * inner
                squeezed = inputs // 4
                total += inner * squeezed + squeezed + squeezed * inner + inner
                total += inner * outputs + 2 * outputs
                inputs = outputs
        return total + 448 * 1792 + 2 * 1792 + 1792 * 1000 + 1000

    assert parameters(1, 6) == 19_341_616  # the count itself, at the published precision
    assert size_of(built(MODIFIED_B4).trainable_variables) == parameters(16, 4)


def test_image_sizes() -> None:
    found = [Network("efficientnet", size).image_size for size in ("0", "b4", "B4", "7")]
    assert [*found, RESNET50.image_size, RESNEXT101.image_size] == [224, 380, 380, 600, 224, 224]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_size": "51"}, "model_size of resnet=51"),
        ({"model": "efficientnet", "model_size": "8"}, "=B8"),
        ({"block_survival_prob": 0.0}, "block_survival_prob"),
        ({"model_size": "18", "norm": "group", "groups": 7}, "groups=7"),
        ({"model": "efficientnet", "model_size": "B0", "group_dim": 10}, "3 groups"),
    ],
)
def test_impossible_values(tf: Any, options: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_classifier(tf, Network(**{"model": "resnet", **options}))


# ---------------------------------------------------------------------- references


def against_torch(
    tf: Any, torch: Any, network: Network, build: Callable[[], Any], size: int = 64
) -> None:
    classifier = varied(tf, network)
    reference = without_weights(torch, build)
    copy_to_torch(torch, classifier, reference)
    inputs = images(size)
    with torch.no_grad():
        expected = reference.eval()(torch.tensor(inputs.transpose(0, 3, 1, 2))).numpy()
    assert error(infer(classifier, tf.constant(inputs)), expected) < 1e-4


def torch_resnet(torchvision: Any, network: Network, **options: Any) -> Any:
    resnet = torchvision.models.resnet
    if network.model == "resnext":
        options.update(groups=32, width_per_group=4)
    block = resnet.BasicBlock if network.model_size == "18" else resnet.Bottleneck
    return resnet.ResNet(block, [2, 2, 2, 2], **options)


# The number of blocks in the published ones follows from their parameters and splits.
TWO_BLOCKS_A_STAGE = [Network("resnet", "26"), Network("resnext", "26")]


@pytest.mark.numeric
@pytest.mark.parametrize("network", TWO_BLOCKS_A_STAGE, ids=["26", "x26"])
def test_resnet_equals_torchvision(tf: Any, torch: Any, torchvision: Any, network: Network) -> None:
    # An odd feature map shows the position of the padding: "SAME" would differ.
    against_torch(tf, torch, network, partial(torch_resnet, torchvision, network), size=40)


@pytest.mark.numeric
def test_group_norm_resnet_equals_torchvision(tf: Any, torch: Any, torchvision: Any) -> None:
    from ipubench.models.torch.norms import ChannelGroupNorm

    norm = partial(ChannelGroupNorm, 32, eps=1e-5, strided=True)
    build = partial(torch_resnet, torchvision, RESNET18, norm_layer=norm)
    against_torch(tf, torch, Network("resnet", "18", norm="group"), build)


@pytest.mark.numeric
def test_efficientnet_equals_torchvision(tf: Any, torch: Any, torchvision: Any) -> None:
    """B0; a B4 has more of the same blocks, as its parameters show."""

    def build() -> Any:
        reference = torchvision.models.efficientnet_b0()
        for layer in reference.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.eps = 1e-3  # as torchvision's only from B5 on
        return reference

    against_torch(tf, torch, B0, build, size=32)


# ---------------------------------------------------------------------- training


@pytest.mark.numeric
def test_training_normalises_by_the_batch_and_averages_move(tf: Any) -> None:
    classifier = varied(tf, RESNET18)
    run = ForwardPass(training=True)
    inputs = tf.constant(images(32, batch=4))
    classifier(inputs, run)
    norm, mean, variance = run.statistics[0]
    stem = classifier.units[0].layers[0]
    assert norm is stem.norm
    assert len(run.statistics) == 20
    sums = stem.conv(inputs, ForwardPass(training=False)).numpy().astype(np.float64)
    assert error(mean, sums.mean((0, 1, 2))) < 1e-5
    assert error(variance, sums.var((0, 1, 2), ddof=1)) < 1e-5
    scaled = (sums - sums.mean((0, 1, 2))) / np.sqrt(sums.var((0, 1, 2)) + 1e-5)
    expected = scaled * norm.gamma.numpy() + norm.beta.numpy()
    assert error(norm(tf.constant(sums, tf.float32), ForwardPass(training=True)), expected) < 1e-5
    before = norm.moving_mean.numpy(), norm.moving_variance.numpy()
    run.update_moving_averages()
    assert error(norm.moving_mean, 0.97 * before[0] + 0.03 * mean.numpy()) < 1e-6
    assert error(norm.moving_variance, 0.97 * before[1] + 0.03 * variance.numpy()) < 1e-6


@pytest.mark.numeric
def test_dense_kernels_change_no_gradient_of_a_resnext(tf: Any) -> None:
    if not has_grouped_gradient(tf):
        pytest.skip("this TensorFlow cannot differentiate grouped convolutions on a CPU")
    classifier = varied(tf, Network("resnext", "14", classes=10))
    found = []
    for dense in (False, True):
        run = ForwardPass(True, tf.constant([1, 2]), dense_groups=dense)
        with tf.GradientTape() as tape:
            logits = classifier(tf.constant(images(32)), run)
            loss = tf.reduce_sum(tf.nn.log_softmax(logits)[:, 0])
        gradients = tape.gradient(loss, classifier.trainable_variables)
        found.append(np.concatenate([np.ravel(gradient) for gradient in gradients]))
    assert error(found[1], found[0]) < 1e-3


@pytest.mark.parametrize("whole", [False, True], ids=["dropout", "drop-connect"])
def test_dropout_keeps_the_expectation(tf: Any, whole: bool) -> None:
    from ipubench.models.tensorflow.cnn.layers import Dropout

    layer, values = Dropout(0.8, 3, whole), tf.ones([4096, 2, 2, 1])
    found = layer(values, ForwardPass(True, tf.constant([1, 2]))).numpy()
    assert set(np.unique(found)) == {0.0, np.float32(1.25)}
    # Four standard errors of a mean of at least 4096 independent draws.
    assert found.mean() == pytest.approx(1.0, abs=4 * 0.5 / 64)
    assert (found.reshape(4096, 4).std(1) == 0).all() == whole
    assert np.array_equal(found, layer(values, ForwardPass(True, tf.constant([1, 2]))))
    assert not np.array_equal(found, layer(values, ForwardPass(True, tf.constant([2, 2]))))
    neighbour = Dropout(0.8, 4, whole)
    assert not np.array_equal(found, neighbour(values, ForwardPass(True, tf.constant([1, 2]))))
    for run in (ForwardPass(True), ForwardPass(False, tf.constant([1, 2]))):
        assert np.array_equal(layer(values, run), values)


def test_later_blocks_survive_less_often(built: Callable[[Network], Any]) -> None:
    classifier = built(B0)
    keeps = [unit.drop.keep for unit in classifier.units if hasattr(unit, "drop")]
    blocks = [2, 4, 6, 7, 9, 10, 12, 13, 14]  # the 16 blocks of B0 with a residual
    assert keeps == pytest.approx([1 - 0.2 * block / 16 for block in blocks])


# ---------------------------------------------------------------------- weights and dtypes


def test_a_seed_determines_the_weights(tf: Any) -> None:
    one, same, other = (build_classifier(tf, SHORT, seed=seed) for seed in (1, 1, 2))
    pairs = list(zip(one.variables, same.variables, other.variables))
    assert all(np.array_equal(a, b) for a, b, _ in pairs)
    assert any(not np.array_equal(a, c) for a, _, c in pairs)


def test_the_last_norm_of_later_blocks_starts_at_zero(built: Callable[[Network], Any]) -> None:
    classifier = built(RESNET50)
    zero = [v.name for v in classifier.trainable_variables if "gamma" in v.name and not v[0]]
    names = [f"b{s + 1}/{b}/conv3/gamma:0" for s, n in enumerate((3, 4, 6, 3)) for b in range(1, n)]
    assert sorted(zero) == sorted(names)


@pytest.mark.numeric
@pytest.mark.parametrize("network", [RESNET18, B0], ids=["resnet", "efficientnet"])
def test_initial_weights_stay_finite_in_float16(tf: Any, network: Network) -> None:
    classifier = build_classifier(tf, network, dtype=tf.float16)
    assert {variable.dtype for variable in classifier.variables} == {tf.float16}
    # As large as pixels from which only the mean was subtracted.
    pixels = tf.cast(np.clip(60 * images(32), -124, 151), tf.float16)
    logits = fold(tf, classifier, tf.float16)(pixels)
    assert logits.dtype == tf.float16
    assert np.isfinite(logits).all()
    assert np.std(logits.numpy().astype(np.float32)) > 1e-4


@pytest.mark.numeric
def test_the_computation_has_the_images_dtype(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_blocks, "STAGES", TWO_STAGES)
    classifier = varied(tf, SHORT)
    inputs = tf.constant(images(32))
    exact = infer(classifier, inputs)

    @tf.function(jit_compile=compiler(tf), autograph=False)
    def rounded(inputs: Any) -> Any:
        return infer(classifier, tf.cast(inputs, tf.bfloat16))

    found = rounded(inputs)
    assert found.dtype == tf.bfloat16
    assert error(tf.cast(found, tf.float32), exact) < 0.1


# A ResNet's convolutions are those of a ResNeXt without groups, which has them as well.
@pytest.mark.numeric
@pytest.mark.parametrize(
    "network", [Network("resnext", "14"), SHORT, SHORT_GROUPED], ids=["resnext", "bn", "gn"]
)
def test_folding_changes_nothing(
    tf: Any, monkeypatch: pytest.MonkeyPatch, network: Network
) -> None:
    monkeypatch.setattr(all_blocks, "STAGES", TWO_STAGES)
    classifier = varied(tf, network)
    inputs = tf.constant(images(32))
    expected = infer(classifier, inputs)
    folded = fold(tf, classifier, tf.float32)
    norms = sum("gamma" in variable.name for variable in classifier.variables)
    assert folded_norms(classifier) == (0 if network is SHORT_GROUPED else norms)
    function = tf.function(folded, autograph=False)
    assert error(function(inputs), expected) < 1e-4
    operations = {op.type for op in function.get_concrete_function(inputs).graph.get_operations()}
    assert not any("BatchNorm" in operation for operation in operations)
    # The classifier is unchanged.
    assert error(infer(classifier, inputs), expected) == 0.0


@pytest.mark.parametrize("fuses", [True, False])
def test_a_grouped_convolution_is_fused_only_if_that_runs(
    tf: Any, monkeypatch: pytest.MonkeyPatch, fuses: bool
) -> None:
    from ipubench.models.tensorflow.cnn import fold as module

    monkeypatch.setattr(module, "fuses_grouped_convolutions", lambda tf: fuses)
    folded = fold(tf, build_classifier(tf, Network("resnext", "14")), tf.float32)
    function = tf.function(folded, autograph=False).get_concrete_function(tf.ones([1, 32, 32, 3]))
    found = [op.type for op in function.graph.get_operations()]
    # A stem, 4 blocks of 3 convolutions, the middle one grouped, and a shortcut, a dense layer.
    assert found.count("Conv2D") == 1 + 4 * 4
    assert found.count("BiasAdd") == 1 + 4 * (4 if fuses else 3) + 1


# ---------------------------------------------------------------------- pipelines


def test_units(built: Callable[[Network], Any]) -> None:
    resnet, efficientnet = ([unit.name for unit in built(of).units] for of in (RESNET18, B0))
    blocks = [f"b{stage}/{block}" for stage in range(1, 5) for block in range(2)]
    assert resnet == ["stem", *(n for b in blocks for n in (b, f"{b}/relu")), "top"]
    assert efficientnet[:5] == ["stem", "block1a/b", "block1a/SE", "block1a/c", "block2a"]
    assert efficientnet[-6:-1] == ["block6d", "block7a", "block7a/b", "block7a/SE", "block7a/c"]
    assert len(set(efficientnet)) == len(efficientnet)


def test_stages_have_all_units_and_variables(built: Callable[[Network], Any]) -> None:
    """The runtime's tests cover the splits of the published commands (ipu/test_training.py)."""
    classifier, splits = built(RESNET50), ["b1/2/relu", "b2/3/relu", "b3/3/relu"]
    stages = split_units(classifier, splits)
    assert [stage[0].name for stage in stages] == ["stem", *splits]
    assert [unit for stage in stages for unit in stage] == list(classifier.units)
    variables = [v.ref() for stage in stages for unit in stage for v in unit.variables]
    assert sorted(map(hash, variables)) == sorted(hash(v.ref()) for v in classifier.variables)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (["b1/2/relu"], "'b1/2/relu' .*b1/1/relu.*\n.*: b1/0 b1/0/relu"),
        (["stem"], "'stem'"),
        (["b2/0", "b1/0"], "'b1/0'"),
        (["b2/0", "b2/0"], "'b2/0'"),
    ],
)
def test_impossible_splits(
    built: Callable[[Network], Any], splits: List[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        split_units(built(RESNET18), splits)
