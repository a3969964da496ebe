"""From the text of ``cmd`` to the words of a process: parameters, variables, words. No shell."""

from __future__ import annotations

import re
import shlex
import string
from pathlib import PurePath
from typing import Callable, FrozenSet, List, Mapping, Sequence

VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([^}]*)\})")
# The parts of a command as shlex sees them; nothing within single quotes has a meaning.
SINGLE, DOUBLE, ESCAPED = r"'[^']*'", r'"(?:\\.|[^"\\])*"', r"\\."
PARTS = re.compile(f"{SINGLE}|{DOUBLE}|{ESCAPED}|{VARIABLE.pattern}", re.DOTALL)
IN_DOUBLE = re.compile(f"{ESCAPED}|{VARIABLE.pattern}", re.DOTALL)
# What a shell would do something about, without and within double quotes.
EXPANSION = r"`|\$\(|\$\{[A-Za-z_]\w*:[^}]*\}?"
OPERATOR = re.compile(f"{SINGLE}|{DOUBLE}|{ESCAPED}|([;|&<>]+|{EXPANSION})", re.DOTALL)
EXPANSION_IN_DOUBLE = re.compile(f"{ESCAPED}|({EXPANSION})", re.DOTALL)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
WANDB = "wandb"
FLAG_VALUES = ("true", "false")  # of a bare --wandb; another word is not its value


def fields(template: str) -> FrozenSet[str]:
    """Return the parameters that a template names. Raises ValueError."""
    names = set()
    for literal, field, form, conversion in _parts(template):
        if field is None or literal.endswith("$"):
            continue
        if form or conversion or not re.fullmatch(r"[\w-]+", field):
            raise ValueError(
                f"{{{field}}} is no name of a parameter; write {{{{ and }}}} for braces"
            )
        names.add(field)
    return frozenset(names)


def fill(template: str, parameters: Mapping[str, str]) -> str:
    """Return the command as one line, each ``{name}`` replaced by the parameter's value.

    ``${NAME}`` of no parameter stays: it is a variable. So does what a shell would do with one,
    such as ``${NAME:-default}``.
    """
    found = []
    for literal, field, form, conversion in _parts(template):
        found.append(literal)
        if field is not None:
            more = (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            found.append(f"{{{field}{more}}}" if more else parameters.get(field, f"{{{field}}}"))
    # A line that a shell would continue.
    return " ".join("".join(found).replace("\\\n", " ").split("\n")).strip()


def _parts(template: str) -> List[Sequence[str]]:
    return list(string.Formatter().parse(template))  # type: ignore[arg-type]


def variables(command: str) -> List[str]:
    """Return the environment variables that a command names, each once, in order."""
    found: List[str] = []

    def noted(name: str, whole: str, _: bool) -> str:
        found.append(name)
        return whole

    _replace(command, noted)
    return list(dict.fromkeys(found))


def words(command: str, environ: Mapping[str, str]) -> List[str]:
    """Return the words of a filled command, its variables replaced as a shell does it.

    Within double quotes a value is a part of its word, without them its blanks end words, and
    within single quotes nothing is replaced. A variable that is not set stays as it is. Raises
    ValueError where a quotation has no end.
    """

    def replaced(name: str, whole: str, quoted: bool) -> str:
        if name not in environ:
            return whole
        if quoted:
            return re.sub(r'(["\\])', r"\\\1", environ[name])
        return re.sub(r"\S+", lambda match: shlex.quote(match.group()), environ[name])

    return shlex.split(_replace(command, replaced))


def _replace(command: str, new: Callable[[str, str, bool], str]) -> str:
    """Replace each variable by ``new(its name, as it is written, within double quotes)``."""

    def outside(match: re.Match[str]) -> str:
        text = match.group()
        if text.startswith('"'):
            return IN_DOUBLE.sub(lambda inner: one(inner, True), text)
        return one(match, False)

    def one(match: re.Match[str], quoted: bool) -> str:
        name = match.group(1) or match.group(2)
        return match.group() if name is None else new(name, match.group(), quoted)

    return PARTS.sub(outside, command)


def problem(command: str) -> str:
    """Return why a filled command is no words of a process, or ''."""
    try:
        found = shlex.split(command)
    except ValueError as error:
        return str(error)
    if not found:
        return "it is empty"
    for part in OPERATOR.finditer(command):
        operator = part.group(1)
        if part.group().startswith('"'):
            inner = EXPANSION_IN_DOUBLE.finditer(part.group())
            operator = next((match.group(1) for match in inner if match.group(1)), None)
        if operator:
            return (
                f"{operator} needs a shell, and there is none; a script can hold it, and quotes "
                "('...') keep it as it stands"
            )
    if ASSIGNMENT.match(command.lstrip()):
        return f"{found[0]} is a shell's assignment, and there is no shell; env: sets variables"
    return ""


def without_wandb(command: Sequence[str]) -> List[str]:
    """Return the words without each option that is about Weights & Biases, and its value.

    A bare ``--wandb`` is a flag: of the words after it only a truth value is its own.
    """
    kept: List[str] = []
    option = ""  # the one whose value may follow
    for word in command:
        if word.startswith("-"):
            about = WANDB in word
            option = word if about and "=" not in word else ""
            if about:
                continue
        elif option:
            its_own = option != f"--{WANDB}" or word.lower() in FLAG_VALUES
            option = ""
            if its_own:
                continue
        kept.append(word)
    return kept


def copies(command: Sequence[str]) -> int:
    """Return N of ``mpirun ... --np N``; 1 without. poprun does not count: it adds up itself."""
    names = [PurePath(word).name for word in command]
    if "mpirun" not in names:
        return 1
    after = list(command[names.index("mpirun") + 1 :])
    for position, word in enumerate(after):
        option, equals, value = word.partition("=")
        if option == "--np":
            text = value if equals else "".join(after[position + 1 : position + 2])
            return int(text) if re.fullmatch("[1-9][0-9]{0,5}", text) else 1
    return 1
