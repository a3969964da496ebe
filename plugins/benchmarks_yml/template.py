"""Turns ``cmd`` into the arguments of a process: fills in parameters and variables, no shell."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import Callable, FrozenSet, List, Mapping, Sequence

VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([^}]*)\})")
# The tokens of a command; shlex leaves everything within single quotes as it is.
SINGLE, DOUBLE, ESCAPED = r"'[^']*'", r'"(?:\\.|[^"\\])*"', r"\\."
TOKENS = re.compile(f"{SINGLE}|{DOUBLE}|{ESCAPED}|{VARIABLE.pattern}", re.DOTALL)
IN_DOUBLE = re.compile(f"{ESCAPED}|{VARIABLE.pattern}", re.DOTALL)
# Syntax that needs a shell, outside quotes.
OPERATOR = re.compile(f"{SINGLE}|{DOUBLE}|{ESCAPED}|([;|&<>]+|`|\\$\\()", re.DOTALL)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
# A variable, which stays; doubled braces; a parameter; a brace that is none of these.
BRACES = re.compile(r"\$\{(?!\{)[^}]*\}|\{\{|\}\}|\{([\w-]+)\}|[{}]")
WANDB = "wandb"
FLAG_VALUES = ("true", "false")  # the only values of a bare --wandb


def fields(template: str) -> FrozenSet[str]:
    """Return the parameters in a template. Raises ValueError."""
    found = list(BRACES.finditer(template))
    if any(match.group() in ("{", "}") for match in found):
        raise ValueError("a brace without a parameter's name; write {{ and }} for braces")
    return frozenset(match.group(1) for match in found if match.group(1))


def fill(template: str, parameters: Mapping[str, str]) -> str:
    """Return the command as one line, with ``{name}`` replaced by the parameter's value.

    ``${NAME}`` stays: it is a variable.
    """

    def new(match: re.Match[str]) -> str:
        name, text = match.group(1), match.group()
        return {"{{": "{", "}}": "}"}.get(text, text) if name is None else parameters[name]

    # Join lines that end with a backslash.
    return " ".join(BRACES.sub(new, template).replace("\\\n", " ").split("\n")).strip()


def variables(command: str) -> List[str]:
    """Return the environment variables in a command, each once, in order."""
    found: List[str] = []

    def noted(name: str, text: str, _: bool) -> str:
        found.append(name)
        return text

    _replace(command, noted)
    return list(dict.fromkeys(found))


def split(command: str, environ: Mapping[str, str]) -> List[str]:
    """Return the arguments of a filled command, with variables replaced as a shell does it.

    Blanks in a value separate arguments, except within double quotes. Within single quotes nothing
    is replaced. A variable that is not set stays. Raises ValueError if a quotation has no end.
    """

    def replaced(name: str, text: str, quoted: bool) -> str:
        if name not in environ:
            return text
        if quoted:
            return re.sub(r'(["\\])', r"\\\1", environ[name])
        return re.sub(r"\S+", lambda match: shlex.quote(match.group()), environ[name])

    return shlex.split(_replace(command, replaced))


def _replace(command: str, new: Callable[[str, str, bool], str]) -> str:
    """Replace each variable by ``new(name, text, whether it is in double quotes)``."""

    def outside(match: re.Match[str]) -> str:
        text = match.group()
        if text.startswith('"'):
            return IN_DOUBLE.sub(lambda quoted: one(quoted, True), text)
        return one(match, False)

    def one(match: re.Match[str], quoted: bool) -> str:
        name = match.group(1) or match.group(2)
        return match.group() if name is None else new(name, match.group(), quoted)

    return TOKENS.sub(outside, command)


def problem(command: str) -> str:
    """Return why a filled command cannot be started, or ''."""
    try:
        found = shlex.split(command)
    except ValueError as error:
        return str(error)
    if not found:
        return "it is empty"
    operator = next((one.group(1) for one in OPERATOR.finditer(command) if one.group(1)), "")
    if operator:
        return (
            f"{operator} needs a shell, and there is none; put it into a script, or into "
            "quotes ('...') if it is text"
        )
    if ASSIGNMENT.match(command.lstrip()):
        return f"{found[0]} is a shell's assignment, and there is no shell; env: sets variables"
    return ""


def without_wandb(command: Sequence[str]) -> List[str]:
    """Return the arguments without the options for Weights & Biases and their values.

    A bare ``--wandb`` is a flag: only a truth value after it belongs to it.
    """
    kept: List[str] = []
    option = ""  # a removed option whose value may follow
    for argument in command:
        if argument.startswith("-"):
            removed = WANDB in argument
            option = argument if removed and "=" not in argument else ""
            if removed:
                continue
        elif option:
            is_value = option != f"--{WANDB}" or argument.lower() in FLAG_VALUES
            option = ""
            if is_value:
                continue
        kept.append(argument)
    return kept


def copies(command: Sequence[str]) -> int:
    """Return N of ``mpirun ... --np N``, else 1. poprun adds up the throughput itself."""
    names = [PurePath(argument).name for argument in command]
    if "mpirun" not in names:
        return 1
    after = list(command[names.index("mpirun") + 1 :])
    for position, argument in enumerate(after):
        option, equals, value = argument.partition("=")
        if option == "--np":
            text = value if equals else "".join(after[position + 1 : position + 2])
            return int(text) if re.fullmatch("[1-9][0-9]{0,5}", text) else 1
    return 1
