"""TF_POPLAR_FLAGS: a case's flags, the user's flags that stay, and flags that come too late."""

from __future__ import annotations

from typing import Dict

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.poplar.poplar_options import (
    POPDIST_CACHE,
    TF_FLAGS,
    Flags,
    case_flags,
    claim_flags,
    parse_flags,
    tensorflow_cache,
)

GENERATED = case_flags(False, False, False, False)
SYNTHETIC = case_flags(False, True, False, False)
ZEROS = case_flags(False, True, True, False)
MODEL = case_flags(True, False, False, False)
COUNTED = case_flags(False, False, False, True)


def claimed(exported: str, needed: Flags, started: bool = False) -> str:
    environ = {TF_FLAGS: exported} if exported else {}
    claim_flags(needed, environ, started)
    return environ.get(TF_FLAGS, "")


@pytest.mark.parametrize(
    ("needed", "flags"),
    [
        (GENERATED, ""),
        (SYNTHETIC, "--use_synthetic_data --synthetic_data_initializer=normal"),
        (ZEROS, "--use_synthetic_data --synthetic_data_initializer=0"),
        (MODEL, "--use_ipu_model"),
        (COUNTED, "--log_cycle_count=0"),
        (
            case_flags(True, True, False, False),
            "--use_ipu_model --use_synthetic_data --synthetic_data_initializer=normal",
        ),
    ],
)
def test_a_case_adds_its_flags(needed: Flags, flags: str) -> None:
    assert claimed("", needed) == flags
    assert claimed(flags, needed) == flags
    assert claimed(flags, needed, started=True) == flags


def test_exported_flags_are_kept_unchanged() -> None:
    assert case_flags(False, False, True, False) == GENERATED  # others would zero real data
    exported = "--executable_cache_path='/my cache' --max_compilation_threads=4"
    assert claimed(f" {exported} ", MODEL) == f"{exported} --use_ipu_model"
    assert claimed("--use_ipu_model=true", MODEL) == "--use_ipu_model=true"
    assert claimed("--use_ipu_model=false", GENERATED) == "--use_ipu_model=false"


@pytest.mark.parametrize(
    ("exported", "needed", "needs"),
    [
        ("--use_synthetic_data", GENERATED, "no --use_synthetic_data.* with --data=synthetic$"),
        (
            "--use_synthetic_data --synthetic_data_initializer=2",
            SYNTHETIC,
            "--synthetic_data_initializer=normal",
        ),
        ("--log_cycle_count=3", COUNTED, "--log_cycle_count=0"),
        ("--synthetic_data_categories=infeed", SYNTHETIC, "no --synthetic_data_categories"),
        ("--null_data_feed", GENERATED, "no --null_data_feed"),
        # These are not flags.
        ("flags.txt", GENERATED, ""),
        ("--use_ipu_model -x", GENERATED, ""),
        ("--a='", GENERATED, ""),
    ],
)
def test_an_exported_flag_that_a_case_cannot_have_is_refused(
    exported: str, needed: Flags, needs: str
) -> None:
    with pytest.raises(CaseError, match=f"the environment's {TF_FLAGS}.*{needs}"):
        claimed(exported, needed)


@pytest.mark.parametrize(
    ("first", "later", "needs"),
    [
        (SYNTHETIC, GENERATED, "no --use_synthetic_data.* --data=generated$"),
        (GENERATED, SYNTHETIC, "--use_synthetic_data.* --data=synthetic$"),
        (SYNTHETIC, ZEROS, "--synthetic_data_initializer=0"),
        (GENERATED, COUNTED, "--log_cycle_count=0.* --set=report_hw_cycle_count=yes$"),
        (COUNTED, GENERATED, "no --log_cycle_count.* --set=report_hw_cycle_count=no$"),
    ],
)
def test_a_later_case_with_other_flags_needs_a_separate_run(
    first: Flags, later: Flags, needs: str
) -> None:
    environ: Dict[str, str] = {}
    claim_flags(first, environ, started=False)
    before = dict(environ)
    claim_flags(first, environ, started=True)
    with pytest.raises(CaseError, match=f"{TF_FLAGS} .*{needs}"):
        claim_flags(later, environ, started=True)
    assert environ == before


def test_flags_are_parsed_as_in_tensorflow() -> None:
    assert parse_flags("--a --b=false --c=1 --d='x y' --a=false --e=True") == {
        "c": "1",
        "d": "x y",
        "e": "true",
    }


@pytest.mark.parametrize(
    ("flags", "poprun", "folder"),
    [
        ("", "", ""),
        ("", "/poprun", "/poprun"),
        ("--executable_cache_path=/flag", "/poprun", "/flag"),
        # From an empty shell variable.
        ("--executable_cache_path=", "/poprun", "/poprun"),
        ("--executable_cache_path=", "", ""),
    ],
)
def test_executables_are_stored_in_tensorflows_folder(flags: str, poprun: str, folder: str) -> None:
    assert tensorflow_cache({TF_FLAGS: flags, POPDIST_CACHE: poprun}) == folder
