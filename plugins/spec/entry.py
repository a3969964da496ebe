"""The entries of a benchmarks.yml: what each key means, and what is wrong with it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from fixtures.config import nearest
from plugins.spec import template, yaml_reader
from plugins.spec.errors import SpecError, short
from plugins.spec.expression import Expression
from plugins.spec.metrics import LATENCY, REDUCTIONS, THROUGHPUT, Metric
from plugins.spec.variants import SCALARS, ParameterError, Variant, variant_name, variants
from plugins.spec.yaml_reader import Value

SHARED = "options"  # in the name of a block that others merge
CONVERGENCE = "_conv"
# A word of a name that says the data are made up.
MADE_UP = {"generated": re.compile(r"gen(erated)?\d*"), "synthetic": re.compile(r"synth(etic)?\d*")}
#: Keys that nothing here does anything about: the user prepares the environment.
PREPARATION = (
    "requirements_path",
    "required_apt_packages_path",
    "required_apt_packages",
    "pre_run_commands",
    "repository",
    "config",
)
KEYS = (
    "cmd",
    "notebook",
    "parameters",
    "data",
    "derived",
    "output",
    "env",
    "timeout",
    "location",
    "reference_directory",
    "requirements_file",
    "allow_wandb",
    "generated",
    "synthetic",
    "description",
    *PREPARATION,
)
TITLE_UNIT = re.compile(r"([A-Za-z][A-Za-z _-]*?)\s*\\?/\s*s(ec(onds?)?)?\b")
TITLE_TIME = re.compile(r"(?<![A-Za-z\\])(ms|us|sec|s)(?![A-Za-z])")
SECONDS = {"ms": 1e-3, "us": 1e-6, "sec": 1.0, "s": 1.0}


@dataclass(frozen=True)
class Entry:
    """One benchmark of a file."""

    name: str
    line: int
    file: str  # as messages call it
    folder: Path  # where its command runs
    command: str  # the template
    variants: Tuple[Variant, ...]
    metrics: Tuple[Metric, ...] = ()
    derived: Dict[str, Expression] = field(default_factory=dict)
    output: Tuple[Tuple[str, str], ...] = ()
    environment: Dict[str, str] = field(default_factory=dict)
    timeout: Optional[float] = None
    requirements: Optional[Path] = None
    allow_wandb: bool = False
    data: str = "real"  # or generated, synthetic: then no data set is asked for
    notebook: bool = False
    unused: Tuple[str, ...] = ()  # its keys that nothing is done about

    @property
    def converges(self) -> bool:
        """Whether it is a training to convergence, which runs only when asked for."""
        return CONVERGENCE in self.name

    @property
    def ipus(self) -> int:
        """N of podN in its name, or 1."""
        found = re.search(r"pod(\d+)", self.name)
        return max(1, int(found.group(1)[:4])) if found else 1

    @property
    def unit(self) -> str:
        """What a throughput counts: of the column's title, else of the regular expression."""
        found = self._said_of(THROUGHPUT, TITLE_UNIT)
        return found.strip() if found else "items"

    @property
    def latency_seconds(self) -> float:
        """The seconds of one unit of a latency: milliseconds unless it says another one."""
        return SECONDS[self._said_of(LATENCY, TITLE_TIME) or "ms"]

    def _said_of(self, metric: str, pattern: re.Pattern[str]) -> str:
        texts = [title for title, name in self.output if name == metric]
        texts += [one.regexp for one in self.metrics if one.name == metric]
        found = (pattern.search(text) for text in texts)
        return next((match.group(1) for match in found if match), "")


def read_entries(path: Path, name: str) -> List[Entry]:
    """Return the benchmarks of a file that messages call ``name``. Raises SpecError."""
    return entries_of(yaml_reader.read(path, name), name, path.parent)


def entries_of(root: Value, name: str, folder: Path) -> List[Entry]:
    """Return the benchmarks of a document, whose paths begin in ``folder``. Raises SpecError."""
    reader = _Reader(name, folder)
    entries = [
        reader.entry(key, root.lines[key], value)
        for key, value in reader.mapping(root, "a benchmarks.yml").items()
        if SHARED not in key
    ]
    if not entries:
        raise SpecError(
            name, 0, f"has no benchmark: a name with {SHARED!r} in it is a shared block"
        )
    known: Dict[str, Entry] = {}
    for entry in entries:
        for variant in entry.variants:
            other = known.setdefault(variant_name(entry.name, variant), entry)
            if other is not entry or entry.variants.count(variant) > 1:
                title = short(variant_name(entry.name, variant))
                raise SpecError(name, entry.line, f"there are two variants {title}")
    return entries


class _Reader:
    """Reads one file's values, and says the line of those that are wrong."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder

    def error(self, line: int, problem: str) -> SpecError:
        return SpecError(self.name, line, problem)

    def mapping(self, value: Value, what: str) -> Dict[str, Value]:
        if not isinstance(value.data, dict):
            raise self.error(value.line, f"{what} holds names with values")
        found: Dict[str, Value] = value.data
        return found

    def keys(self, value: Value, what: str, known: Sequence[str]) -> Dict[str, Value]:
        """Return a mapping that has known keys only; those without a value are left out."""
        found = self.mapping(value, what)
        for key in found:
            if key not in known:
                raise self.error(
                    value.lines[key],
                    f"{what}: {short(key)} is no key{nearest(key, known)}; there are "
                    f"{', '.join(known)}",
                )
        return {key: inner for key, inner in found.items() if inner.data is not None}

    def text(self, value: Value, what: str) -> str:
        if not isinstance(value.data, str) or not value.data.strip():
            raise self.error(value.line, f"{what} is a text")
        return value.data

    def flag(self, value: Value, what: str) -> bool:
        if not isinstance(value.data, bool):
            raise self.error(value.line, f"{what} is true or false")
        return value.data

    def scalar(self, value: Value, what: str) -> str:
        if not isinstance(value.data, SCALARS):
            raise self.error(value.line, f"{what} is a text or a number")
        return str(value.data)

    def entry(self, name: str, line: int, value: Value) -> Entry:
        found = self.keys(value, short(name), KEYS)
        if ("cmd" in found) == ("notebook" in found):
            problem = "has both cmd and notebook" if "cmd" in found else "has no cmd"
            raise self.error(
                line, f"{short(name)} {problem}; a shared block has {SHARED!r} in its name"
            )
        command = self.text(found["cmd"], f"{short(name)}: cmd") if "cmd" in found else ""
        parameters = found.get("parameters", Value(line, None))
        try:
            every = variants(parameters)
        except ParameterError as error:
            raise self.error(error.line, f"{short(name)}: {error}") from None
        if command:
            self._check_command(name, found["cmd"].line, command, every)
        metrics = self._each(found, "data", self._metric)
        derived = self._derived(found, [metric.name for metric in metrics], list(every[0]))
        return Entry(
            name=name,
            line=line,
            file=self.name,
            folder=self._folder(found),
            command=command,
            variants=tuple(every),
            metrics=tuple(metrics),
            derived=derived,
            output=self._output(found),
            environment=self._environment(found),
            timeout=self._timeout(found),
            requirements=self._requirements(found),
            allow_wandb="allow_wandb" in found
            and self.flag(found["allow_wandb"], f"{short(name)}: allow_wandb"),
            data=self._data(name, found),
            notebook="notebook" in found,
            unused=tuple(key for key in PREPARATION if key in found),
        )

    def _check_command(self, name: str, line: int, command: str, every: List[Variant]) -> None:
        try:
            missing = sorted(template.fields(command) - set(every[0]))
            filled = template.fill(command, every[0])
            first = [] if missing else template.words(filled, {})
            shell = "" if missing else template.shell_word(filled)
        except ValueError as error:
            raise self.error(line, f"{short(name)}: cmd: {error}") from None
        if missing:
            raise self.error(
                line,
                f"{short(name)}: cmd: there is no parameter {missing[0]}"
                f"{nearest(missing[0], every[0])}; write {{{{ and }}}} for braces",
            )
        if shell or not first:
            problem = f"{shell} needs a shell, and there is none; a script can hold it"
            raise self.error(line, f"{short(name)}: cmd: {problem if shell else 'it is empty'}")

    def _each(
        self, found: Dict[str, Value], key: str, make: Callable[[str, Value], Any]
    ) -> List[Any]:
        if key not in found:
            return []
        return [make(name, inner) for name, inner in self.mapping(found[key], key).items()]

    def _metric(self, name: str, value: Value) -> Metric:
        what = f"the metric {short(name)}"
        found = self.keys(value, what, ("regexp", "skip", "reduction_type"))
        if "regexp" not in found:
            raise self.error(value.line, f"{what} needs a regexp")
        regexp = self.text(found["regexp"], f"{what}: regexp")
        try:
            groups = re.compile(regexp).groups
        # A repeat count may be too large for a C int, and brackets too many.
        except (re.error, OverflowError, RecursionError) as error:
            raise self.error(found["regexp"].line, f"{what}: regexp: {error}") from None
        if groups > 1:
            raise self.error(
                found["regexp"].line,
                f"{what}: regexp has {groups} groups; write (?:...) for all but the number's",
            )
        skip = found["skip"].data if "skip" in found else 0
        if isinstance(skip, bool) or not isinstance(skip, int) or skip < 0:
            raise self.error(found["skip"].line, f"{what}: skip is a whole number from 0 up")
        return Metric(name, regexp, skip, self._reduction(found, what))

    def _reduction(self, found: Dict[str, Value], what: str) -> str:
        if "reduction_type" not in found:
            return "mean"
        word = found["reduction_type"].data
        if word not in REDUCTIONS:
            raise self.error(
                found["reduction_type"].line,
                f"{what}: reduction_type {short(word)} is none of {', '.join(REDUCTIONS)}"
                f"{nearest(str(word), REDUCTIONS)}",
            )
        return str(word)

    def _derived(
        self, found: Dict[str, Value], metrics: List[str], parameters: List[str]
    ) -> Dict[str, Expression]:
        """Return the expressions, each after those that it reads."""
        made: Dict[str, Expression] = {}
        given = self.mapping(found["derived"], "derived") if "derived" in found else {}
        known = [*metrics, *parameters, *given]
        for name, value in given.items():
            what = f"the derived value {short(name)}"
            if name in metrics or name in parameters:
                raise self.error(found["derived"].lines[name], f"{what}: a metric has this name")
            inner = self.keys(value, what, ("expr", "reduction_type"))
            self._reduction(inner, what)
            if "expr" not in inner:
                raise self.error(value.line, f"{what} needs an expr")
            try:
                made[name] = Expression(self.scalar(inner["expr"], f"{what}: expr"))
            except SpecError:
                raise
            except ValueError as error:
                raise self.error(inner["expr"].line, f"{what}: {error}") from None
            unknown = sorted(made[name].names - set(known))
            if unknown:
                raise self.error(
                    inner["expr"].line,
                    f"{what}: {unknown[0]} is no metric, parameter or derived value"
                    f"{nearest(unknown[0], known)}",
                )
        ordered: Dict[str, Expression] = {}
        while len(ordered) < len(made):
            ready = [
                name
                for name, one in made.items()
                if name not in ordered and not (one.names & set(made)) - set(ordered)
            ]
            if not ready:
                circle = next(name for name in made if name not in ordered)
                line = found["derived"].lines[circle]
                raise self.error(line, f"the derived value {short(circle)} depends on itself")
            ordered.update({name: made[name] for name in ready})
        return ordered

    def _output(self, found: Dict[str, Value]) -> Tuple[Tuple[str, str], ...]:
        if "output" not in found:
            return ()
        pairs = found["output"].data if isinstance(found["output"].data, list) else None
        if pairs is None or not all(isinstance(p.data, list) and len(p.data) == 2 for p in pairs):
            raise self.error(
                found["output"].line, "output is a list of pairs [title, metric or parameter]"
            )
        columns = []
        for pair in pairs:
            title, name = (self.scalar(part, "a pair of output") for part in pair.data)
            columns.append((title, name))
        return tuple(columns)

    def _environment(self, found: Dict[str, Value]) -> Dict[str, str]:
        if "env" not in found:
            return {}
        variables = self.mapping(found["env"], "env")
        for name in variables:
            if "=" in name or "\0" in name or not name:
                raise self.error(found["env"].lines[name], f"{short(name)} is no variable's name")
        texts = {name: self.scalar(value, f"env: {name}") for name, value in variables.items()}
        for name, text in texts.items():
            if "\0" in text:
                raise self.error(variables[name].line, f"env: {name} holds a null character")
        return texts

    def _timeout(self, found: Dict[str, Value]) -> Optional[float]:
        if "timeout" not in found:
            return None
        seconds = found["timeout"].data
        number = not isinstance(seconds, bool) and isinstance(seconds, (int, float))
        if not number or not 0 < seconds < math.inf:
            raise self.error(found["timeout"].line, "timeout is a positive number of seconds")
        return float(seconds)

    def _folder(self, found: Dict[str, Value]) -> Path:
        folder = self.folder
        for key in ("reference_directory", "location"):
            if key in found:
                folder = folder / self._path(found[key], key)
        return folder

    def _requirements(self, found: Dict[str, Value]) -> Optional[Path]:
        if "requirements_file" not in found:
            return None
        return self._folder(found) / self._path(found["requirements_file"], "requirements_file")

    def _path(self, value: Value, what: str) -> str:
        text = self.text(value, what)
        if "\0" in text:
            raise self.error(value.line, f"{what} holds a null character")
        return text

    def _data(self, name: str, found: Dict[str, Value]) -> str:
        words = re.split(r"[^A-Za-z0-9]+", name.lower())
        for mode, word in MADE_UP.items():
            if mode in found:
                if self.flag(found[mode], f"{short(name)}: {mode}"):
                    return mode
            elif any(map(word.fullmatch, words)):
                return mode
        return "real"
