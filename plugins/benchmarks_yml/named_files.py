"""`pytest FILE.yml`: collects the entries of a benchmarks.yml that the command line names.

Other YAML files in collected folders are ignored. Files are read first of all, so that a malformed
one is a usage error.
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.yaml_reader import YamlError
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine.files import user_path, write_atomically
from ipubench.plugins.benchmarks_yml.cases import (
    SpecConfig,
    SpecFile,
    Wanted,
    cases_of,
    config_of,
    entry_of,
    is_spec,
    unknown_option,
)
from ipubench.plugins.benchmarks_yml.command import base_environment, needs
from ipubench.plugins.benchmarks_yml.command_results import column_lines, csv_text
from ipubench.plugins.benchmarks_yml.entry import Entry
from ipubench.plugins.benchmarks_yml.reader import read_entries
from ipubench.plugins.command_line.role import Role
from ipubench.plugins.run.recording import Recording
from ipubench.plugins.selection.selected import Selection, cases_among
from ipubench.plugins.state import Run

SUFFIXES = (".yml", ".yaml")
CSV_NAME = "specs.csv"
NOTEBOOK = "need a notebook's kernel, and a notebook is not run: put its cells into a script"
CONVERGENCE = "need -k with the full name: they train to convergence"


class NamedFiles:
    """Collects the files that the command line names."""

    def __init__(self, files: Dict[Path, Dict[str, Entry]]) -> None:
        """``files``: file -> name -> entry."""
        self.files = files

    def pytest_collect_file(self, file_path: Path, parent: Any) -> Optional[SpecFile]:
        """Collect a file that was read."""
        entries = self.files.get(file_path)
        if entries is None:
            return None
        return SpecFile.of(parent, file_path, _nodeid(parent.config, file_path), entries)


def read_files(run: Run) -> None:
    """Read the files of the command line."""
    config = run.config
    files: Dict[Path, Dict[str, Entry]] = {}
    try:
        for given, path in _named(config):
            if path not in files:
                files[path] = {entry.name: entry for entry in read_entries(path, given)}
    except YamlError as error:
        raise pytest.UsageError(str(error)) from None
    run.selection.named_files = {_nodeid(config, path): path for path in files}
    if files:
        config.pluginmanager.register(NamedFiles(files), "ipubench-benchmarks-yml")


def _named(config: pytest.Config) -> List[Any]:
    """Return (path as given, absolute path) of the YAML files on the command line."""
    found = []
    for argument in config.args:
        given = argument.split("::")[0]
        # Links are not resolved, as in pytest.
        path = Path(os.path.abspath(config.invocation_params.dir / given))
        # pytest reports paths that it cannot use.
        if path.suffix in SUFFIXES and os.path.isfile(path):
            found.append((given, path))
    return found


def _nodeid(config: pytest.Config, path: Path) -> str:
    """Return a path relative to the project's folder, also for a file outside it.

    So node ids do not depend on the other arguments, and a baseline can move with the project.
    """
    return Path(os.path.relpath(path, config.rootpath)).as_posix()


def parametrize_entries(metafunc: pytest.Metafunc, selection: Selection) -> None:
    """Turn the entries of a file into cases."""
    file = metafunc.definition.getparent(SpecFile)
    if file is None:
        return
    option = options_of(metafunc.config)
    wanted = Wanted(selection.assignments, selection.device, option.data, option.precision)
    found: Dict[str, Case] = {}
    for entry in file.entries.values():
        for case in cases_of(entry, wanted):
            for identifier in (case.base_id, case.id):
                selection.nodeids.add(f"{metafunc.definition.nodeid}[{identifier}]")
            other = found.setdefault(case.id, case)
            if other.config != case.config:
                # A case that lacks an option of --set is left out anyway.
                found[case.id], second = (case, other) if other.lacks else (other, case)
                found[f"{second.base_id}-invalid"] = _refused(found[case.id], second)
    params = [pytest.param(case, id=case.id, marks=pytest.mark.spec) for case in found.values()]
    metafunc.parametrize("ipubench_case", params, indirect=True)


def _refused(first: Case, second: Case) -> Case:
    """Return a case with an error, because another command has its name."""
    assert isinstance(first.config, SpecConfig) and isinstance(second.config, SpecConfig)
    one, other = first.config.entry, second.config.entry
    who, what = f"{one} and {other}", "rename one of them in the file"
    if one == other:
        who, what = f"two commands of {one}", "give one value"
    return dataclasses.replace(
        second,
        id=f"{second.base_id}-invalid",
        error=f"--set: {who} would both be {first.id}; {what}",
    )


def leave_out_entries(items: List[pytest.Item], selection: Selection) -> None:
    """Leave out notebooks, and trainings to convergence that the command line does not name."""
    selection.leave_out(items, _why_left_out)
    _judge_options(items, selection)


def _why_left_out(item: pytest.Item, case: Case) -> str:
    if not is_spec(item):
        return ""
    entry = entry_of(item)
    if entry.converges and not _is_named(item.config, case):
        return CONVERGENCE
    return NOTEBOOK if entry.notebook else ""


def _is_named(config: pytest.Config, case: Case) -> bool:
    """Return whether the command line names a case, by its node id or in ``-k``."""
    assert isinstance(case.config, SpecConfig)
    if any(argument.endswith(f"[{case.id}]") for argument in config.args):
        return True
    words = re.findall(r"[^\s()]+", config.option.keyword.lower())
    return case.config.entry.lower() in words or case.id.lower() in words


def _judge_options(items: List[pytest.Item], selection: Selection) -> None:
    """Refuse a --set key that no command has, if only commands are selected."""
    cases = cases_among(items)
    configs = [case.config for case in cases if isinstance(case.config, SpecConfig)]
    if not cases or len(configs) < len(cases):
        return
    for key in selection.assignments:
        if all(key in case.lacks for case in cases):
            raise pytest.UsageError(unknown_option(key, configs))


def check_commands(run: Run, items: Sequence[pytest.Item]) -> None:
    """Check what the selected commands need, before any of them runs."""
    option = options_of(run.config)
    items = list(filter(is_spec, items))
    if not items or run.role is Role.LISTING:
        return
    if option.save_graph is not None:
        raise pytest.UsageError("--save-graph: a command has no graph that can be saved")
    if option.profile is not None and not devices.of(run.selection.device).poplar:
        raise pytest.UsageError(
            "--profile: a command on a host has no profile; give it its profiler's options as "
            "parameters"
        )
    try:
        base = base_environment(option.dataset_dir)
    except CaseError as error:
        raise pytest.UsageError(f"--dataset-dir={option.dataset_dir}: {error}") from None
    for item in items:
        missing = needs(entry_of(item), config_of(item), base)
        if missing:
            raise pytest.UsageError(missing)


def unused_keys(items: List[pytest.Item]) -> List[str]:
    """Return lines about the keys of the files that have no effect here."""
    found: Dict[str, Dict[str, None]] = {}
    for item in filter(is_spec, items):
        entry = entry_of(item)
        found.setdefault(entry.file, {}).update(dict.fromkeys(entry.unused))
    return [
        f"{file}: {', '.join(keys)}: not done here; prepare the environment before the run"
        for file, keys in found.items()
        if keys
    ]


def write_columns(run: Recording) -> None:
    """Show the columns that the files ask for, and write them next to the report."""
    config = run.config
    benchmarks = list(run.results.benchmarks.values())
    run.closing += column_lines(benchmarks)
    text = csv_text(benchmarks)
    folder = options_of(config).report
    if folder is None:
        return
    path = user_path(folder) / CSV_NAME
    try:
        if text:
            write_atomically(path, text)
            run.closing.append(f"the columns of the commands: {path}")
        elif run.results.worth_a_report and path.exists():
            path.unlink()  # of an earlier report
    except OSError as error:
        run.closing.append(f"{path} could not be written: {error}")
