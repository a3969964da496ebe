"""Poplar's options: what is accepted, and what becomes of those the user exported."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.poplar.options import (
    parse_options,
    reporting,
    reports_in,
)

ENGINE_OPTIONS = "POPLAR_ENGINE_OPTIONS"  # Poplar's own name


def test_values_become_the_text_that_poplar_reads() -> None:
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
def test_what_is_no_set_of_options_is_refused(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_options(text)
    with pytest.raises(CaseError, match=f"the environment's {ENGINE_OPTIONS}: "):
        reporting({ENGINE_OPTIONS: text}, Path("/reports"))


def test_reports_keep_what_the_user_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = '{"autoReport.all": "false", "autoReport.directory": ".", "debug.trace": "true"}'
    monkeypatch.setenv(ENGINE_OPTIONS, exported)
    with reports_in(Path("/reports/case")):
        assert json.loads(os.environ[ENGINE_OPTIONS]) == {
            "autoReport.all": "false",
            "autoReport.directory": "/reports/case",
            "debug.trace": "true",
        }
    assert os.environ[ENGINE_OPTIONS] == exported


def test_reports_are_asked_for_in_full_and_what_reports_is_not_kept_for_runs_that_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ENGINE_OPTIONS, raising=False)
    monkeypatch.delenv("POPTORCH_CACHE_DIR", raising=False)
    for variable in ("POPART_CACHE_DIR", "POPXL_CACHE_DIR"):
        monkeypatch.setenv(variable, "/kept")
    before = {**os.environ}
    with pytest.raises(KeyError), reports_in(Path("/reports")):
        options = json.loads(os.environ[ENGINE_OPTIONS])
        assert options == {"autoReport.all": "true", "autoReport.directory": "/reports"}
        assert not {"POPART_CACHE_DIR", "POPXL_CACHE_DIR"}.intersection(os.environ)
        raise KeyError
    assert os.environ == before
