"""What `--dry-run` says of a command: the words that a case runs, and where."""

from __future__ import annotations

import os
from typing import List, Optional, Tuple

import pytest

from fixtures.errors import CaseError
from plugins.selection import case_of
from plugins.spec.cases import SpecConfig
from plugins.spec.command import base_environment, words_of
from plugins.spec.module import entry_of, is_spec


def launched(item: pytest.Item) -> Optional[Tuple[str, List[str]]]:
    """Return where a case runs its command, and the command's words; None of another case."""
    case = case_of(item)
    if case is None or not is_spec(item):
        return None
    assert isinstance(case.config, SpecConfig)
    where = os.path.relpath(str(entry_of(item).folder), str(item.config.invocation_params.dir))
    variables = [f"{name}={value}" for name, value in case.config.environment]
    with_them = f" with {' '.join(variables)}" if variables else ""
    try:
        words = words_of(case.config, base_environment(item.config.option.dataset_dir))
    except CaseError as error:
        return f"  cannot run: {error}", []
    return f"  which runs, in {where}{with_them}:", words
