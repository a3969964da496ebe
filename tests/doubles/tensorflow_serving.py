"""A stand-in for the SDK's export to TensorFlow Serving, over any TensorFlow 2.

It checks arguments as strictly as the SDK and writes a SavedModel with the same interface, which
runs on the CPU and has no IPU program.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.doubles.record import module_of
from tests.doubles.tensorflow_ipu.record import recorded, recorder

NAME = "tensorflow.python.ipu.serving"


@recorded
def export_single_step(
    predict_step: Any,
    export_dir: Any,
    iterations: Any,
    predict_step_signature: Any = None,
    input_dataset: Any = None,
    output_names: Any = None,
    preprocessing_step: Any = None,
    preprocessing_step_signature: Any = None,
    postprocessing_step: Any = None,
    postprocessing_step_signature: Any = None,
    purge_export_dir: Any = False,
) -> Any:
    import tensorflow as tf

    assert recorder.attached, "no IPU is configured"
    if recorder.run_error:
        raise tf.errors.InternalError(None, None, recorder.run_error)
    folder = Path(export_dir)
    if folder.is_dir() and any(folder.iterdir()) and not purge_export_dir:
        raise ValueError(f'Directory "{export_dir}" is not empty.')
    if not isinstance(predict_step_signature, (tuple, list)) or not predict_step_signature:
        raise TypeError("`predict_step_signature` must be an instance of tuple or list")
    if isinstance(output_names, str):
        output_names = [output_names]
    names = list(inspect.signature(predict_step).parameters)
    assert len(names) == len(predict_step_signature)
    # The model's inputs are named like the function's parameters.
    specs = [
        tf.TensorSpec(spec.shape, spec.dtype, name=name)
        for spec, name in zip(predict_step_signature, names)
    ]
    assert all(spec.shape.is_fully_defined() for spec in specs)

    def named(*inputs: Any) -> Any:
        results = tf.nest.flatten(predict_step(*inputs))
        assert len(results) == len(output_names)
        return dict(zip(output_names, results))

    module = tf.Module()
    module.predict = tf.function(named, input_signature=specs, autograph=False)
    module.weights = list(module.predict.get_concrete_function().graph.variables)
    tf.saved_model.save(module, str(folder))
    return module.predict


def as_module(sdk: str = "3.4") -> ModuleType:
    """Return ``tensorflow.python.ipu.serving`` of an SDK, with what the project uses."""
    offered = {"3.4": export_single_step, "2.6": _of_sdk_26()}[sdk]
    return module_of(NAME, ("export_single_step",), {"export_single_step": offered})


def _of_sdk_26() -> Any:
    """Return the function of SDK 2.6, in which a parameter has another name and others lack."""

    @recorded
    def export_single_step(
        predict_step: Any,
        export_dir: Any,
        iterations: Any,
        input_signature: Any = None,
        input_dataset: Any = None,
        output_names: Any = None,
    ) -> Any:
        later: Any = inspect.unwrap(globals()["export_single_step"])
        return later(
            predict_step, export_dir, iterations, input_signature, input_dataset, output_names
        )

    return export_single_step
