"""Reads the entries of a benchmarks.yml, or reports what is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Set, Tuple

from ipubench.fixtures.case import yaml_reader
from ipubench.fixtures.case.errors import shortened
from ipubench.fixtures.case.options import nearest
from ipubench.fixtures.case.yaml_reader import Fields, Value, YamlError
from ipubench.plugins.benchmarks_yml import figures, template
from ipubench.plugins.benchmarks_yml.entry import (
    KEYS,
    MADE_UP,
    PREPARATION,
    SHARED,
    Entry,
    Variant,
    VariantReader,
    variant_name,
)

EMPTY = "an entry is a name with cmd: COMMAND below it"
LONGEST_TIMEOUT = 366 * 24 * 3600  # seconds


def read_entries(path: Path, name: str) -> List[Entry]:
    """Return the entries of a file; messages call it ``name``. Raises YamlError."""
    return entries_of(yaml_reader.read(path, name, EMPTY), name, path.parent)


def entries_of(root: Value, name: str, folder: Path) -> List[Entry]:
    """Return the entries of a document; its paths are relative to ``folder``. Raises YamlError."""
    reader = _Reader(Fields(name), folder)
    given = reader.fields.mapping(root, "a benchmarks.yml")
    blocks = _merged_blocks(root)
    entries = [
        reader.entry(key, root.lines[key], value)
        for key, value in given.items()
        if SHARED not in key and key not in blocks
    ]
    if not entries:
        raise YamlError(
            name, 0, f"has no benchmark: a name with {SHARED!r} in it is a shared block"
        )
    titles = set()
    for entry in entries:
        for variant in entry.variants:
            title = variant_name(entry.name, variant)
            if title in titles:
                raise YamlError(name, entry.line, f"there are two variants {shortened(title)}")
            titles.add(title)
    shown = [known for entry in entries for known in (*entry.figures, *entry.variants[0])]
    figures.unknown_column(reader.fields, reader.columns, shown)
    return entries


def _merged_blocks(root: Value) -> Set[str]:
    """Return the names of blocks without a command that entries below them merge."""
    blocks = {key: value for key, value in root.data.items() if isinstance(value.data, dict)}
    declared: Dict[str, Set[int]] = {}
    merged: Set[int] = set()
    for key, block in blocks.items():
        # Merged values are declared above the block, and are the same objects in all blocks.
        names = {name for name, line in block.lines.items() if line >= root.lines[key]}
        declared[key] = {id(block.data[name]) for name in names}
        merged |= {id(value) for name, value in block.data.items() if name not in names}
    return {
        key
        for key, values in declared.items()
        if not {"cmd", "notebook"} & set(blocks[key].data) and values & merged
    }


class _Reader:
    """Reads the entries of one file."""

    def __init__(self, fields: Fields, folder: Path) -> None:
        self.fields = fields
        self.folder = folder
        #: (line, title, name) of the columns of all entries.
        self.columns: List[Tuple[int, str, str]] = []

    def entry(self, name: str, line: int, value: Value) -> Entry:
        fields = self.fields
        found = fields.keys(value, shortened(name), KEYS)
        if ("cmd" in found) == ("notebook" in found):
            problem = "has both cmd and notebook" if "cmd" in found else "has no cmd"
            raise fields.error(
                line, f"{shortened(name)} {problem}; a shared block has {SHARED!r} in its name"
            )
        command = fields.text(found["cmd"], f"{shortened(name)}: cmd") if "cmd" in found else ""
        every = VariantReader(fields, name).variants(found.get("parameters", Value(line, None)))
        if command:
            self._check_command(name, found["cmd"].line, command, every)
        metrics = figures.metrics_of(fields, found)
        names = [metric.name for metric in metrics]
        derived = figures.derived_of(fields, found, names, every)
        columns = figures.output_of(fields, found, [*names, *derived])
        self.columns += columns
        return Entry(
            name=name,
            line=line,
            file=fields.name,
            folder=self._folder(found),
            command=command,
            variants=tuple(every),
            metrics=tuple(metrics),
            derived=derived,
            output=tuple((title, shown) for _, title, shown in columns),
            environment=self._environment(found),
            timeout=self._timeout(found),
            requirements=self._requirements(found),
            allow_wandb="allow_wandb" in found
            and fields.flag(found["allow_wandb"], f"{shortened(name)}: allow_wandb"),
            data=self._data(name, found),
            notebook="notebook" in found,
            unused=tuple(key for key in PREPARATION if key in found),
        )

    def _check_command(self, name: str, line: int, command: str, every: Sequence[Variant]) -> None:
        try:
            missing = sorted(template.fields(command) - set(every[0]))
        except ValueError as error:
            raise self.fields.error(line, f"{shortened(name)}: cmd: {error}") from None
        if missing:
            raise self.fields.error(
                line,
                f"{shortened(name)}: cmd: there is no parameter {missing[0]}"
                f"{nearest(missing[0], every[0])}; write {{{{ and }}}} for braces",
            )
        for variant in every:
            problem = template.problem(template.fill(command, variant))
            if problem:
                what = shortened(variant_name(name, variant))
                raise self.fields.error(line, f"{what}: cmd: {problem}")

    def _environment(self, found: Dict[str, Value]) -> Dict[str, str]:
        if "env" not in found:
            return {}
        variables = self.fields.mapping(found["env"], "env")
        for name in variables:
            if "=" in name or not name:
                raise self.fields.error(
                    found["env"].lines[name], f"{shortened(name)} cannot name a variable"
                )
        return {name: self.fields.scalar(v, f"env: {name}") for name, v in variables.items()}

    def _timeout(self, found: Dict[str, Value]) -> Optional[float]:
        if "timeout" not in found:
            return None
        seconds = found["timeout"].data
        number = not isinstance(seconds, bool) and isinstance(seconds, (int, float))
        if not number or not 0 < seconds <= LONGEST_TIMEOUT:
            raise self.fields.error(
                found["timeout"].line, "timeout is a positive number of seconds, at most a year"
            )
        return float(seconds)

    def _folder(self, found: Dict[str, Value]) -> Path:
        folder = self.folder
        for key in ("reference_directory", "location"):
            if key in found:
                folder = folder / self.fields.text(found[key], key)
        return folder

    def _requirements(self, found: Dict[str, Value]) -> Optional[Path]:
        key = "requirements_file"
        return self._folder(found) / self.fields.text(found[key], key) if key in found else None

    def _data(self, name: str, found: Dict[str, Value]) -> str:
        words = re.split(r"[^A-Za-z0-9]+", name.lower())
        for mode, word in MADE_UP.items():
            if mode in found:
                if self.fields.flag(found[mode], f"{shortened(name)}: {mode}"):
                    return mode
            elif any(map(word.fullmatch, words)):
                return mode
        return "real"
