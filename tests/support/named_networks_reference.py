"""The named networks built independently from Keras layers, as the original program describes them.

Layers have the original's names, which our units have too; our variables "x/kernel" and "x/gamma"
belong to the layers "x_conv" and "x_bn".
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import numpy as np

EPSILON = 1.001e-5
MOMENTUM = 0.97
#: Size of a ResNet -> number of blocks in its stages.
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
#: Returns a norm layer for a name.
Norm = Callable[[str], Any]


def batch_norm(tf: Any) -> Norm:
    return lambda name: tf.keras.layers.BatchNormalization(
        momentum=MOMENTUM, epsilon=EPSILON, name=name
    )


def group_norm(tf: Any, groups: Callable[[int], int]) -> Norm:
    """Return norms over ``groups(channels)`` groups of channels a stride apart, as in the SDK."""

    class GroupNorm(tf.keras.layers.Layer):  # type: ignore[misc, name-defined, unused-ignore]
        def build(self, shape: Any) -> None:
            self.gamma = self.add_weight(name="gamma", shape=(shape[-1],))
            self.beta = self.add_weight(name="beta", shape=(shape[-1],))
            self.built = True

        def call(self, images: Any) -> Any:
            _, height, width, channels = images.shape
            count = groups(channels)
            split = tf.reshape(images, [-1, height, width, channels // count, count])
            mean, variance = tf.nn.moments(split, [1, 2, 3], keepdims=True)
            scaled = tf.reshape((split - mean) / tf.sqrt(variance + EPSILON), tf.shape(images))
            return scaled * self.gamma + self.beta

    return lambda name: GroupNorm(name=name)


def keras_network(
    tf: Any, model_name: str, image_shape: Tuple[int, int, int], classes: int, norm: Norm
) -> Any:
    """Return the Keras model: images -> logits."""
    inputs = tf.keras.Input(shape=image_shape)
    if model_name.startswith("cifar_resnet"):
        outputs = _cifar(tf, inputs, (int(model_name[len("cifar_resnet") :]) - 2) // 6, norm)
    elif model_name.startswith("resnet"):
        outputs = _resnet(tf, inputs, int(model_name[len("resnet") :]), norm)
    else:
        outputs = _toy(tf, inputs, norm if model_name == "toy_model_bn" else None)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(classes, name="top")(outputs))


def _conv(tf: Any, norm: Norm, images: Any, name: str, channels: int, size: int, **kw: Any) -> Any:
    layers = tf.keras.layers
    suffix = "_conv_ds" if "layer" in name and kw.get("strides", 1) > 1 else "_conv"
    conv = layers.Conv2D(channels, size, use_bias=False, name=f"{name}{suffix}", **kw)
    return norm(f"{name}_bn")(conv(images))


def _resnet(tf: Any, images: Any, size: int, norm: Norm) -> Any:
    layers = tf.keras.layers
    images = layers.ZeroPadding2D(3, name="conv1_pad")(images)
    images = layers.ReLU(name="conv1_relu")(_conv(tf, norm, images, "conv1", 64, 7, strides=2))
    images = layers.ZeroPadding2D(1, name="pool1_pad")(images)
    images = layers.MaxPooling2D(3, strides=2, name="pool1_pool")(images)
    for stage, blocks in enumerate(BLOCKS[size]):
        filters = 64 * 2**stage
        for index in range(blocks):
            name, stride = f"conv{stage + 2}_block{index + 1}", 2 if stage and not index else 1
            shortcut, same = images, {"padding": "same"}
            width = filters * (4 if size == 50 else 1)
            if index == 0:
                shortcut = _conv(tf, norm, images, f"{name}_0", width, 1, strides=stride)
            if size == 50:
                images = _conv(tf, norm, images, f"{name}_1", filters, 1)
                images = layers.ReLU(name=f"{name}_1_relu")(images)
                images = _conv(tf, norm, images, f"{name}_2", filters, 3, strides=stride, **same)
                images = layers.ReLU(name=f"{name}_2_relu")(images)
                images = _conv(tf, norm, images, f"{name}_3", width, 1)
            else:
                images = _conv(tf, norm, images, f"{name}_1", filters, 3, strides=stride, **same)
                images = layers.ReLU(name=f"{name}_1_relu")(images)
                images = _conv(tf, norm, images, f"{name}_2", filters, 3, **same)
            images = layers.ReLU(name=f"{name}_out")(layers.Add()([shortcut, images]))
    return layers.GlobalAveragePooling2D(name="avg_pool")(images)


def _cifar(tf: Any, images: Any, blocks: int, norm: Norm) -> Any:
    layers, same = tf.keras.layers, {"padding": "same"}

    class Shortcut(layers.Layer):  # type: ignore[misc, name-defined, unused-ignore]
        def call(self, images: Any) -> Any:
            half = images[:, ::2, ::2]
            return tf.concat([half, tf.zeros_like(half)], 3)

    images = _conv(tf, norm, images, "conv1", 16, 3, **same)
    images = layers.ReLU(name="conv1_relu")(images)
    for stage in range(3):
        for index in range(blocks):
            name, stride = f"conv{stage + 2}_block{index + 1}", 2 if stage and not index else 1
            shortcut = images if stride == 1 else Shortcut()(images)
            width = 16 * 2**stage
            images = _conv(tf, norm, images, f"{name}_layer1", width, 3, strides=stride, **same)
            images = layers.ReLU(name=f"{name}_layer1_relu")(images)
            images = _conv(tf, norm, images, f"{name}_layer2", width, 3, **same)
            images = layers.Add()([shortcut, images])
            images = layers.ReLU(name=f"{name}_post_addition_relu")(images)
    return layers.GlobalAveragePooling2D(name="avg_pool")(images)


def _toy(tf: Any, images: Any, norm: Any) -> Any:
    layers = tf.keras.layers
    for index, (channels, size) in enumerate([(4, 3), (8, 1)]):
        conv = layers.Conv2D(channels, size, activation="relu", name=f"conv2d_{index}")
        pool = layers.MaxPooling2D(5, name="max_pooling2d_1" if index else "max_pooling2d")
        images = pool(conv(images))
        if norm is not None:
            images = norm(f"bn_{index}")(images)
    return layers.Flatten(name="flatten")(images)


def layer_of(variable: str, keras: Dict[str, Any]) -> str:
    """Return the Keras layer among ``keras`` that has our ``variable``, such as "x/gamma"."""
    path, kind = variable.rsplit("/", 1)
    of_norm = kind in ("gamma", "beta", "moving_mean", "moving_variance")
    suffixes = ("_bn", "") if of_norm else ("_conv", "_conv_ds", "")
    names = [f"{path.split('/')[0]}{suffix}" for suffix in suffixes]
    return next(name for name in names if name in keras)


def copy_to_keras(classifier: Any, model: Any) -> Dict[str, Any]:
    """Copy all variables to the Keras model; return its variables by our names."""
    layers = {layer.name: layer for layer in model.layers}
    left = {id(weight): weight for layer in model.layers for weight in layer.weights}
    found = {}
    for variable in classifier.variables:
        name = variable.name.split(":")[0]
        twin = getattr(layers[layer_of(name, layers)], name.rsplit("/", 1)[1])
        twin.assign(variable.numpy())
        found[name] = left.pop(id(twin))
    assert not left
    return found


def random_images(shape: Tuple[int, ...], seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
