"""Leaves out the cases that cannot or should not run here, and lists the reasons."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from functools import partial
from typing import Any, List, Sequence, Set

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import NAMED, RARE, SWEEP, Case
from ipubench.fixtures.case.errors import some_of
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine.processor import read_topology
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.plugins.command_line.set_option import unknown_key_message
from ipubench.plugins.selection.order import SERVERS
from ipubench.plugins.selection.selected import (
    COMMON,
    FRAMEWORKS,
    Selection,
    case_of,
    cases_among,
)

#: The most names that the message about an empty selection shows.
NEAR = 8


def add_names(items: List[pytest.Item], selection: Selection) -> None:
    """Let ``-k`` also find a case by its identifier without overrides."""
    for item in items:
        item.extra_keyword_matches.update(selection.base_ids.get(item.nodeid, ()))
    fitting = [case for case in cases_among(items) if not _unfit(case, selection.device)]
    selection.names = sorted({case.config.name for case in fitting})
    selection.functions = sorted({item.name.split("[")[0] for item in items if case_of(item)})
    ids = {name for case in fitting for name in _identifiers(case)}
    selection.words_of_k = sorted({*ids, *selection.functions})


def leave_out_unfit(config: pytest.Config, items: List[pytest.Item], selection: Selection) -> None:
    """Leave out what this device cannot run, then what ``--set`` makes invalid."""
    selection.leave_out(items, partial(_why_not_here, selection.device))
    selection.invalid = _invalid(selection, cases_among(items), options_of(config))
    selection.leave_out(items, _why_not_so)
    selection.empty = not items
    for case in cases_among(items):
        for warning in case.config.warnings if not case.error else ():
            selection.warnings.setdefault(warning, []).append(case.id)
    selection.unused = {
        field.name
        for case in cases_among(items)
        for field in dataclasses.fields(case.config)
        if field.metadata.get("ipu_only") and field.name in case.overrides and not case.config.ipus
    }


def _why_not_here(device: str, item: pytest.Item, case: Case) -> str:
    """Return what a case lacks to run here, or ''."""
    option = options_of(item.config)
    fixtures = getattr(item, "fixturenames", ())
    kind = devices.of(device)
    computes = kind.poplar or kind.torch_name
    if not computes and not {*FRAMEWORKS, *SERVERS}.isdisjoint(fixtures):
        return f"need a framework, and --device={device} has none"
    if case.excluded:
        return f"left out by {case.excluded}"
    unfit = _unfit(case, device)
    if unfit:
        return unfit
    paths = item.config.option.file_or_dir
    given = (item.config.option.keyword, *(word.partition("::")[2] for word in paths))
    # pytest's -k ignores case as well.
    words = {word for text in given for word in re.findall(r"[\w.-]+", text.lower())}
    if case.tier == SWEEP and not option.sweep and not _spelled(case, words):
        return "between the ends of a sweep: --sweep, or -k with a full name"
    if case.tier == RARE and not option.sweep and not _spelled(case, words, exact=True):
        return f"with {case.config.data} data: --data={case.config.data}, --sweep or a full name"
    if case.tier == NAMED and not option.sweep and not _named(case, words):
        return "of additional configurations: --sweep, or -k with a full name"
    return ""


def _identifiers(case: Case) -> Set[str]:
    return {case.id.lower(), case.base_id.lower()}


def _spelled(case: Case, words: Set[str], exact: bool = False) -> bool:
    """Return whether a word is a case's identifier, or without ``exact`` its part before data."""
    names = _identifiers(case)
    if not exact:
        names |= {name.rpartition("-")[0] for name in names}
    return not words.isdisjoint(names)


def _named(case: Case, words: Set[str]) -> bool:
    """Return whether a word is in a case's identifier and has the name of its configuration.

    After `not`, a longer word that begins with the name means another case.
    """
    name = case.config.name.lower()
    return any(name in word and word in known for word in words for known in _identifiers(case))


def _unfit(case: Case, device: str) -> str:
    """Return which other device a case needs, or ''."""
    needs = case.config.ipus
    kind = devices.of(device)
    if kind.poplar:
        return "" if needs else "for a host: --device=cpu or --device=cuda"
    if needs:
        return f"need {needs} IPU{'s' if needs > 1 else ''}: --device=ipu"
    if not kind.on_cpu and case.config.needs_cpu:
        return f"need a CPU for {case.config.needs_cpu}"
    return ""


def _invalid(selection: Selection, selected: Sequence[Case], option: Any) -> List[str]:
    """Return the invalid values of a sweep, one line for each configuration.

    Raises UsageError for an option that no selected case has, and if all values are invalid.
    """
    for key in selection.assignments:
        if selected and all(key in case.lacks for case in selected):
            if key == "use_zero_values" and option.zero_values:
                raise pytest.UsageError("--zero-values: kernels have it, and no selected case does")
            classes = {type(case.config) for case in selected}
            raise pytest.UsageError(unknown_key_message(key, classes))
    for key in COMMON:
        value = getattr(option, key)
        if value is not None and selected and all(key in case.lacks for case in selected):
            raise pytest.UsageError(
                f"--{key}={value}: no selected case has this option; a test has it that uses a "
                f"device or runtime of ours, or that declares it, as in {key}: str = option(...)"
            )
    valid = [case for case in selected if not (case.lacks or case.error)]
    valid_options = {option for case in selected if not case.error for option in case.given}
    found: List[str] = []
    for case in selected:
        # Commands of a benchmarks.yml have no given options: the error may be in their file.
        others_have_it = bool(case.given) and case.given <= valid_options
        if case.error and not (case.lacks or others_have_it or option.dry_run):
            if not valid or not case.given:
                raise pytest.UsageError(case.error)
            found.append(f"{case.config.name} {_cannot(case)}")
    return list(dict.fromkeys(found))


def _why_not_so(item: pytest.Item, case: Case) -> str:
    """Return why a case cannot have the given options, or ''; a dry run lists these cases."""
    if case.lacks:
        return f"without the option {', '.join(sorted(case.lacks))}"
    if case.error and not options_of(item.config).dry_run:
        return _cannot(case)
    return ""


def _cannot(case: Case) -> str:
    given = " ".join(sorted(case.given))
    problem = case.error.replace(f"{case.config.name}: ", "", 1)
    return f"cannot have {given}: {problem.replace(f'{given}: ', '', 1)}"


def _nearest_names(selection: Selection, keyword: str, asked: str) -> str:
    """Return a sentence with the names that are nearest to those of ``-k``.

    ``asked``: the options that select, ``-k`` among them.
    """
    words = [word for word in re.findall(r"[\w.-]+", keyword) if word not in ("and", "or", "not")]
    near: List[str] = []
    for word in words:
        near += difflib.get_close_matches(word, selection.functions, n=1)
        near += [name for name in selection.names if word.lower() in name.lower()]
        near += difflib.get_close_matches(word, selection.names, n=3)
    meant = re.sub(r"[\w.-]+", lambda word: _as_in(selection.words_of_k, word.group()), keyword)
    if meant != keyword:
        return f"no case is selected by {asked}; did you mean -k {meant!r}?"
    shown = ", ".join(list(dict.fromkeys(near))[:NEAR]) or some_of(selection.names, NEAR)
    nearest = "the nearest names" if near else "some names"
    return (
        f"no case is selected by {asked}; {nearest} of --device={selection.device} are: "
        f"{shown}; --collect-only without -k lists all"
    )


def _as_in(known: Sequence[str], word: str) -> str:
    """Return a word of ``-k`` with ``-`` for ``_``, or the reverse, if a case has it like that."""
    plain = word.lower().replace("_", "-")
    if "-" not in plain or any(word.lower() in name.lower() for name in known):
        return word
    for name in known:
        start = name.lower().replace("_", "-").find(plain)
        if start >= 0:
            return name[start : start + len(word)]
    return word


def _float32(device: str, items: Sequence[pytest.Item]) -> List[str]:
    """Return a line about the precisions that this CPU replaces.

    Only a framework's cases have a precision of ours.
    """
    runtimes = {*FRAMEWORKS, *SERVERS}
    precisions = {
        case.config.precision
        for item in items
        for case in [case_of(item)]
        if case and not runtimes.isdisjoint(getattr(item, "fixturenames", ()))
    }
    found = sorted(precision for precision in precisions if precision.startswith("16"))
    kind = devices.of(device)
    if kind.poplar or not kind.on_cpu or not found or read_topology().fast_bfloat16:
        return []
    return [
        f"precision {' and '.join(found)}: float32, marked f32, because this CPU has neither "
        "AVX512_BF16 nor AMX"
    ]


def _singular(reason: str) -> str:
    """Return a reason that is worded for several cases, worded for one."""
    return re.sub("^need ", "needs ", reason).replace("which they do not", "which it does not")


def what_was_left_out(
    config: pytest.Config, items: List[pytest.Item], selection: Selection
) -> List[str]:
    """Return lines: which cases are left out and why; if all are, what would match."""
    lines = [
        f"{count} cases {reason}" if count > 1 else f"1 case {_singular(reason)}"
        for reason, count in sorted(selection.left_out.items())
    ]
    if selection.unused:
        names = ", ".join(sorted(selection.unused))
        lines.append(f"recorded and not used on a host: {names}")
    for warning, cases in selection.warnings.items():
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        lines.append(f"{cases[0]}{more}: {warning}")
    lines += _float32(selection.device, items)
    if not devices.of(selection.device).poplar and "--use_ipu_model" in os.environ.get(
        TF_FLAGS, ""
    ):
        flag = f"{TF_FLAGS}=--use_ipu_model does nothing with --device={selection.device}"
        lines.append(f"{flag}: --device=ipu-model takes the SDK's emulator")
    keyword, marks = config.option.keyword, config.option.markexpr
    asked = f"-k {keyword!r}" + (f" with -m {marks!r}" if marks else "")
    if selection.empty and keyword and selection.left_out:
        lines.append(f"no case is selected: all that {asked} finds are left out, see above")
    elif selection.empty and selection.left_out and not items:
        lines.append("no case is selected: the lines above name the options that leave them out")
    elif selection.empty and keyword and selection.names:
        lines.append(_nearest_names(selection, keyword, asked))
    return lines
