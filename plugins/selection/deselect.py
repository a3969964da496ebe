"""Leaves out the cases that cannot or should not run here, and says why."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import Any, List, Optional, Sequence, Set, Tuple

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import NAMED, RARE, SWEEP, Case
from ipubench.fixtures.case.errors import some_of
from ipubench.fixtures.machine.processor import read_topology
from ipubench.plugins.command_line.set_option import unknown_key_message
from ipubench.plugins.selection.expand import FRAMEWORKS, Selection, case_of, selection_key

#: Names that an empty selection shows at most.
NEAR = 8


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def pytest_collection_modifyitems_begins(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Let ``-k`` also find a case by the identifier that it has without overrides."""
    selection = config.stash[selection_key]
    for item in items:
        item.extra_keyword_matches.update(selection.base_ids.get(item.nodeid, ()))
    found = [case for case in map(case_of, items) if case is not None]
    fitting = [case for case in found if not _unfit(case, selection.device)]
    selection.names = sorted({case.config.name for case in fitting})
    selection.functions = sorted({item.name.split("[")[0] for item in items if case_of(item)})


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Keep what this device can run; judge ``--set`` on what is left."""
    selection = config.stash[selection_key]
    kept: List[pytest.Item] = []
    dropped: List[pytest.Item] = []
    for item in items:
        case = case_of(item)
        reason = _why_left_out(case, selection.device, config.option) if case else ""
        fixtures = getattr(item, "fixturenames", ())
        if case and selection.device == "fake" and not FRAMEWORKS.keys().isdisjoint(fixtures):
            reason = "need a framework, which the fake device has none of"
        if reason:
            selection.left_out[reason] += 1
        (dropped if reason else kept).append(item)
    kept, lacking = _judge_overrides(selection, kept, config.option)
    dropped += lacking
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    items[:] = kept
    selection.empty = not kept
    for case in filter(None, map(case_of, kept)):
        for warning in case.config.warnings if not case.error else ():
            selection.warnings.setdefault(warning, []).append(case.id)
    selection.unused = {
        field.name
        for case in filter(None, map(case_of, kept))
        for field in dataclasses.fields(case.config)
        if field.metadata.get("ipu_only") and field.name in case.overrides and not case.config.ipus
    }


def _why_left_out(case: Case, device: str, option: Any) -> str:
    """Return what a case needs to run, or '' if it runs."""
    if case.excluded:
        return f"left out by {case.excluded}"
    unfit = _unfit(case, device)
    if unfit:
        return unfit
    given = (option.keyword, *(word.partition("::")[2] for word in option.file_or_dir))
    # pytest's -k does not know capitals either.
    words = {word for text in given for word in re.findall(r"[\w.-]+", text.lower())}
    if case.tier == SWEEP and not option.sweep and not _spelled(case, words):
        return "between the ends of a sweep: --sweep, or -k with a full name"
    if case.tier == RARE and not option.sweep and not _spelled(case, words, whole=True):
        return f"with {case.config.data} data: --data={case.config.data}, --sweep or a full name"
    if case.tier == NAMED and not option.sweep and not _named(case, words):
        return "of further configurations: --sweep, or -k with a full name"
    return ""


def _identifiers(case: Case) -> Set[str]:
    return {case.id.lower(), case.base_id.lower()}


def _spelled(case: Case, words: Set[str], whole: bool = False) -> bool:
    """Whether a word is a case's identifier, if not ``whole`` also without its last part: data."""
    names = _identifiers(case)
    if not whole:
        names |= {name.rpartition("-")[0] for name in names}
    return not words.isdisjoint(names)


def _named(case: Case, words: Set[str]) -> bool:
    """Whether a word that is in a case's identifier has the name of its configuration.

    After `not`, a longer word that begins with the name means another case.
    """
    name = case.config.name.lower()
    return any(name in word and word in known for word in words for known in _identifiers(case))


def _unfit(case: Case, device: str) -> str:
    """Return which other device a case is for, or ''."""
    needs = case.config.ipus
    if device in devices.IPU_KINDS:
        return "" if needs else "for a host: --device=cpu or --device=cuda"
    if needs:
        return f"need {needs} IPU{'s' if needs > 1 else ''}: --device=ipu"
    if device == "cuda" and case.config.needs_cpu:
        return f"need a CPU for {case.config.needs_cpu}"
    return ""


def _judge_overrides(
    selection: Selection, items: List[pytest.Item], option: Any
) -> Tuple[List[pytest.Item], List[pytest.Item]]:
    """Return (kept, left out). Of a contradiction a dry run tells where it shows the case."""
    dry_run = option.dry_run
    found = [(item, case_of(item)) for item in items]
    selected = [case for _, case in found if case is not None]
    if not selected:
        return items, []
    for key in selection.assignments:
        if all(key in case.lacks for case in selected):
            if key == "use_zero_values" and option.zero_values:
                raise pytest.UsageError("--zero-values: kernels have it, and no selected case does")
            classes = {type(case.config) for case in selected}
            raise pytest.UsageError(unknown_key_message(key, classes))
    if not dry_run:
        _refuse_what_no_case_can_have(selected)
    kept: List[pytest.Item] = []
    lacking: List[pytest.Item] = []
    for item, case in found:
        reason = ""
        if case is not None and case.lacks:
            reason = f"without the option {', '.join(sorted(case.lacks))}"
        elif case is not None and case.error and not dry_run:
            problem = case.error.replace(f"{case.config.name}: ", "", 1)
            reason = f"cannot have {' '.join(sorted(case.given))}: {problem}"
        if reason:
            selection.left_out[reason] += 1
        (lacking if reason else kept).append(item)
    return kept, lacking


def _refuse_what_no_case_can_have(selected: Sequence[Case]) -> None:
    """Raise UsageError for the first word of the command line that only refused cases have.

    A command of a benchmarks.yml, whose file may be what is wrong, is refused whatever others are.
    """
    possible = {word for case in selected if not case.error for word in case.given}
    for case in selected:
        others_have_it = bool(case.given) and case.given <= possible
        if case.error and not case.lacks and not others_have_it:
            raise pytest.UsageError(case.error)


def _what_would_match(selection: Selection, keyword: str, asked: str) -> str:
    """Return a sentence about the names that are nearest to those of ``-k``.

    ``asked``: it and the other words that chose.
    """
    words = [word for word in re.findall(r"[\w.-]+", keyword) if word not in ("and", "or", "not")]
    near: List[str] = []
    for word in words:
        near += difflib.get_close_matches(word, selection.functions, n=1)
        near += [name for name in selection.names if word.lower() in name.lower()]
        near += difflib.get_close_matches(word, selection.names, n=3)
    shown = ", ".join(list(dict.fromkeys(near))[:NEAR]) or some_of(selection.names, NEAR)
    nearest = "the nearest names" if near else "some names"
    return (
        f"no case is selected by {asked}; {nearest} of --device={selection.device} are: "
        f"{shown}; --collect-only without -k lists all"
    )


def _float32(device: str, cases: Sequence[Optional[Case]]) -> List[str]:
    """Say which precisions this CPU replaces."""
    found = sorted(
        {case.config.precision for case in cases if case and case.config.precision.startswith("16")}
    )
    if device != "cpu" or not found or read_topology().fast_bfloat16:
        return []
    return [
        f"precision {' and '.join(found)}: float32, marked f32, because this CPU has neither "
        "AVX512_BF16 nor AMX"
    ]


def pytest_report_collectionfinish(config: pytest.Config, items: List[pytest.Item]) -> List[str]:
    """Say what was left out and what it needs; of an empty selection, what would match."""
    selection = config.stash[selection_key]
    lines = [
        f"{count} cases {reason}" if count > 1 else f"1 case {re.sub('^need ', 'needs ', reason)}"
        for reason, count in sorted(selection.left_out.items())
    ]
    if selection.unused:
        names = ", ".join(sorted(selection.unused))
        lines.append(f"recorded and not used on a host, where they change nothing: {names}")
    for warning, cases in selection.warnings.items():
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        lines.append(f"{cases[0]}{more}: {warning}")
    lines += _float32(selection.device, [case_of(item) for item in items])
    keyword, marks = config.option.keyword, config.option.markexpr
    asked = f"-k {keyword!r}" + (f" with -m {marks!r}" if marks else "")
    if selection.empty and keyword and selection.left_out:
        lines.append(f"no case is selected: all that {asked} finds are left out, see above")
    elif selection.empty and keyword and selection.names:
        lines.append(_what_would_match(selection, keyword, asked))
    return lines
