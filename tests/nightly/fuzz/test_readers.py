"""For any input a reader returns a value or raises its own error.

EXAMPLES=N tries N inputs for each reader and kind (`make fuzz`). Earlier findings are in found/.
"""

from __future__ import annotations

import contextlib
import os
import random
import warnings
from pathlib import Path
from typing import List, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.nightly.fuzz.mutations import mutated
from tests.nightly.fuzz.readers import READERS

FOUND = Path(__file__).with_name("found")
many = settings(
    max_examples=int(os.environ.get("EXAMPLES", 40)),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    print_blob=True,
)


def attempt(folder: Path, name: str, content: bytes) -> None:
    """Read an input; any error other than the reader's own fails the test."""
    reader = READERS[name]
    with warnings.catch_warnings(), contextlib.suppress(reader.error):
        warnings.simplefilter("ignore")
        reader.read(folder, content)


@pytest.mark.parametrize("name", READERS)
def test_a_valid_input_is_read(tmp_path: Path, name: str) -> None:
    """Otherwise the other tests would only repeat one refusal."""
    reader = READERS[name]
    assert reader.read(tmp_path, reader.sound(tmp_path)) is not None or name == "TFRecord"


@pytest.mark.parametrize("name", READERS)
@many
@given(seed=st.integers(0, 1 << 32))
def test_nearly_valid_inputs(tmp_path: Path, name: str, seed: int) -> None:
    content = mutated(READERS[name].sound(tmp_path), random.Random(seed))
    attempt(tmp_path, name, content)


@pytest.mark.parametrize("name", READERS)
@many
@given(content=st.binary(max_size=300))
def test_any_bytes(tmp_path: Path, name: str, content: bytes) -> None:
    attempt(tmp_path, name, content)


def _found() -> List[Tuple[str, Path]]:
    folders = {name: FOUND / name.replace(" ", "-").replace(".", "-") for name in READERS}
    return [(name, path) for name, folder in folders.items() for path in folder.glob("*")]


@pytest.mark.parametrize(("name", "path"), _found(), ids=lambda value: str(value)[-30:])
def test_earlier_findings(tmp_path: Path, name: str, path: Path) -> None:
    attempt(tmp_path, name, path.read_bytes())
