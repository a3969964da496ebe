"""Runs the command of a case: its requirements, its environment, its logs."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.masking import (
    MASK,
    forms_of,
    known_secrets,
    mask_value,
    mask_words,
    secrets_in,
    without_secrets,
)
from ipubench.fixtures.case.untrusted import read_bytes
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.data.sources import FOLDER_VARIABLE, with_absolute_folders
from ipubench.fixtures.devices import lent
from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.machine.files import FOLDER, kind_of, replacing, user_path
from ipubench.fixtures.machine.loopback import tuned
from ipubench.fixtures.machine.packages import version_of
from ipubench.fixtures.machine.process import LAST_LINES, ServerProcess, last_lines
from ipubench.plugins.benchmarks_yml import template
from ipubench.plugins.benchmarks_yml.cases import SpecConfig, config_of, entry_of, is_spec
from ipubench.plugins.benchmarks_yml.entry import Entry

COMPILE_ONLY = "--compile-only"
# The time between two updates of the progress line.
LOOK_SECONDS = 1.0
# The time between SIGTERM and SIGKILL.
GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Ran:
    """A command that has succeeded."""

    arguments: List[str]
    stdout: Path
    stderr: Path
    seconds: float
    peak_bytes: int


def base_environment(dataset_dir: Optional[str]) -> Dict[str, str]:
    """Return this process's environment for commands, with this Python first in PATH.

    Raises CaseError if ``dataset_dir`` begins with ``~USER`` and there is no such user.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    found = with_absolute_folders(kept)
    folders = [os.path.dirname(sys.executable), found.get("PATH", os.defpath)]
    found["PATH"] = os.pathsep.join(folders)
    if dataset_dir is not None:
        found[FOLDER_VARIABLE] = str(user_path(dataset_dir).absolute())
    return found


def environment(
    config: SpecConfig, device: Device, base: Mapping[str, str], keep: bool
) -> Dict[str, str]:
    """Return the environment of a command; ``keep``: its C library keeps freed memory."""
    found = lent(tuned(base) if keep else base)
    found.update(device.variables(base))
    found.update(config.environment)
    return found


def needs(entry: Entry, config: SpecConfig, base: Mapping[str, str]) -> str:
    """Return a sentence about what a command lacks to run, or ''."""
    where = f"{entry.file}, line {entry.line}: {config.name}"
    known = {**base, **dict(config.environment)}
    if FOLDER_VARIABLE not in known and (
        config.data == "real" or FOLDER_VARIABLE in template.variables(config.command)
    ):
        hint = "set it, or give --dataset-dir=PATH"
        if FOLDER_VARIABLE not in template.variables(config.command):
            hint += "; an entry that reads no data set needs generated: true"
        return f"{where} needs a data set, and {FOLDER_VARIABLE} is not set: {hint}"
    unset = [name for name in template.variables(config.command) if name not in known]
    if unset:
        return f"{where}: its command uses ${unset[0]}, which is not set"
    try:
        problem = "" if kind_of(entry.folder) == FOLDER else "which is not a folder"
    except OSError as error:
        problem = f"which cannot be used: {error.strerror}"
    if problem:
        return f"{where} runs in {entry.folder}, {problem}"
    if entry.requirements is not None:
        return _unmet(where, entry.requirements)
    return ""


def _unmet(where: str, path: Path) -> str:
    """Return a sentence about a requirement that this Python does not meet, or ''.

    This ignores lines for pip alone, such as options and URLs.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        lines = read_bytes(path).decode("utf-8").splitlines()
    except (OSError, ValueError) as error:
        return f"{where}: its requirements_file cannot be read: {error}"
    for line in lines:
        text = re.split(r"(?:^|\s)#", line)[0].strip()
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        if wanted.url or (wanted.marker and not wanted.marker.evaluate()):
            continue
        version = version_of(wanted.name)
        if not version or not wanted.specifier.contains(version, prereleases=True):
            found = f"this Python has {version}" if version else "this Python has none"
            return (
                f"{where} needs {text}, and {found}; install it: "
                f"{sys.executable} -m pip install -r {path}"
            )
    return ""


def arguments_of(config: SpecConfig, known: Mapping[str, str]) -> List[str]:
    """Return the arguments of a case's command. Raises CaseError.

    ``known``: the variables to replace.
    """
    try:
        arguments = template.split(config.command, known)
    except ValueError as error:
        raise CaseError(f"{config.name}: its command cannot be split: {error}") from None
    if config.compile_only:
        arguments = [*arguments, COMPILE_ONLY]
    keep_wandb = config.allow_wandb and not config.compile_only
    return arguments if keep_wandb else template.without_wandb(arguments)


def run(
    entry: Entry,
    config: SpecConfig,
    environ: Mapping[str, str],
    logs: Path,
    progress: Callable[[str], None],
) -> Ran:
    """Run the command of a case to its end. Raises CaseError if it fails.

    The command has a separate session. It always ends with all that it has started, also after an
    interruption or the death of this process.
    """
    arguments = arguments_of(config, environ)
    stdout, stderr = logs / "stdout", logs / "stderr"
    what = f"{entry.file}: the command of {config.name}"
    process = ServerProcess(
        what, arguments, stdout, environ, GRACE_SECONDS, folder=entry.folder, errors=stderr
    )
    start = time.perf_counter()
    try:
        process.start()
        while not process.ends_within(_wait(config, start)):
            spent = time.perf_counter() - start
            if config.timeout and spent >= config.timeout:
                process.stop()
                raise failure(
                    f"{what} had not ended after {config.timeout:g} s (timeout), and was ended "
                    "with everything it had started",
                    stderr,
                )
            progress(f"running for {spent:.0f} s")
        seconds = time.perf_counter() - start
    finally:
        process.stop()
        _mask_logs([*known_secrets(environ), *secrets_in(arguments)], (stdout, stderr))
    if process.exit_code != 0:
        raise failure(f"{what} {process.how_it_ended()} after {seconds:.1f} s", stderr)
    return Ran(arguments, stdout, stderr, seconds, process.peak_bytes or 0)


def _mask_logs(secrets: Collection[str], logs: Sequence[Path]) -> None:
    """Mask the secrets that a command has printed. Raises CaseError."""
    forms = forms_of(secrets)
    if not forms:
        return
    secret = re.compile(b"|".join(re.escape(os.fsencode(form)) for form in forms))
    for log in filter(Path.exists, logs):
        try:
            with log.open("rb") as file:
                if not any(map(secret.search, file)):
                    continue
            with log.open("rb") as before, replacing(log) as path, path.open("wb") as after:
                after.writelines(secret.sub(MASK.encode(), line) for line in before)
        except OSError as error:
            raise CaseError(
                f"{log} may contain secrets, which cannot be masked: {error}; delete it, and "
                "name another folder with --results-dir=PATH"
            ) from error


def _wait(config: SpecConfig, start: float) -> float:
    if not config.timeout:
        return LOOK_SECONDS
    return min(LOOK_SECONDS, max(0.0, start + config.timeout - time.perf_counter()))


def failure(problem: str, stderr: Path) -> CaseError:
    """Return the error for a command, with the last lines of its standard error."""
    lines = "".join(f"\n    {line}" for line in last_lines(stderr, LAST_LINES))
    end = f"; the last lines of its standard error:{lines}" if lines else ""
    return CaseError(f"{problem}. Its output is in {stderr.parent}{end}")


def launched(item: pytest.Item) -> Optional[Tuple[str, List[str]]]:
    """Return a heading with the folder of a case's command, and its arguments; else None.

    Raises CaseError if it cannot run.
    """
    if not is_spec(item):
        return None
    config = config_of(item)
    where = os.path.relpath(str(entry_of(item).folder), str(item.config.invocation_params.dir))
    variables = [f"{name}={mask_value(name, value)}" for name, value in config.environment]
    with_them = f" with {' '.join(variables)}" if variables else ""
    known = {**base_environment(options_of(item.config).dataset_dir), **dict(config.environment)}
    arguments = mask_words(arguments_of(config, without_secrets(known)))
    return f"  which runs, in {where}{with_them}:", arguments
