"""Poplar's options: which are accepted, and how the user's exported options are merged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.poplar.poplar_options import (
    parse_options,
    reporting,
    reports_in,
)

ENGINE_OPTIONS = "POPLAR_ENGINE_OPTIONS"  # Poplar's own name


def test_values_become_poplars_text() -> None:
    text = (
        '{"availableMemoryProportion": 0.2, "use128BitConvUnitLoad": true, "partialsType": "half"}'
    )
    assert parse_options("") == parse_options("  ") == parse_options("{}") == {}
    assert parse_options(text) == {
        "availableMemoryProportion": "0.2",
        "use128BitConvUnitLoad": "true",
        "partialsType": "half",
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "JSON"),
        ("partialsType=half", "JSON"),
        ("[1]", "JSON object"),
        ("0.2", "JSON object"),
        ('{"a": null}', "^a: "),
        ('{"a": {"b": 1}}', "^a: "),
    ],
)
def test_invalid_options_are_refused(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_options(text)
    with pytest.raises(CaseError, match=f"the environment's {ENGINE_OPTIONS}: "):
        reporting({ENGINE_OPTIONS: text}, Path("/reports"))


def test_reports_keep_the_exported_options(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = '{"autoReport.all": "false", "autoReport.directory": ".", "debug.trace": "true"}'
    monkeypatch.setenv(ENGINE_OPTIONS, exported)
    with reports_in(Path("/reports/case")):
        assert json.loads(os.environ[ENGINE_OPTIONS]) == {
            "autoReport.all": "false",
            "autoReport.directory": "/reports/case",
            "debug.allowOutOfMemory": "true",
            "debug.trace": "true",
        }
    assert os.environ[ENGINE_OPTIONS] == exported


def test_full_reports_are_requested_and_such_programs_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ENGINE_OPTIONS, raising=False)
    monkeypatch.delenv("POPTORCH_CACHE_DIR", raising=False)
    for variable in ("POPART_CACHE_DIR", "POPXL_CACHE_DIR"):
        monkeypatch.setenv(variable, "/kept")
    before = {**os.environ}
    with pytest.raises(KeyError), reports_in(Path("/reports")):
        options = json.loads(os.environ[ENGINE_OPTIONS])
        assert options == {
            "autoReport.all": "true",
            "autoReport.directory": "/reports",
            # Without it, a program that does not fit would leave no report.
            "debug.allowOutOfMemory": "true",
        }
        assert not {"POPART_CACHE_DIR", "POPXL_CACHE_DIR"}.intersection(os.environ)
        raise KeyError
    assert os.environ == before
