"""From the text of ``cmd`` to the words of a process: parameters, variables, words. No shell."""

from __future__ import annotations

import re
import shlex
import string
from pathlib import PurePath
from typing import FrozenSet, List, Mapping, Sequence

VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]*)\})")
# Words by which a shell would be asked for something.
SHELL_WORDS = ("&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1")
WANDB = "wandb"


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

    ``${NAME}`` of no parameter stays: it is a variable.
    """
    found = []
    for literal, field, _, _ in _parts(template):
        found.append(literal)
        if field is not None:
            found.append(parameters.get(field, f"{{{field}}}"))
    # A line that a shell would continue.
    return " ".join("".join(found).replace("\\\n", " ").split("\n")).strip()


def _parts(template: str) -> List[Sequence[str]]:
    return list(string.Formatter().parse(template))  # type: ignore[arg-type]


def variables(command: str) -> List[str]:
    """Return the environment variables that a command names, each once, in order."""
    return list(dict.fromkeys(a or b for a, b in VARIABLE.findall(command)))


def words(command: str, environ: Mapping[str, str]) -> List[str]:
    """Return the words of a filled command: variables are replaced first, as a shell does it.

    Raises ValueError where a quotation has no end. A variable that is not set stays as it is.
    """

    def replaced(match: re.Match[str]) -> str:
        return environ.get(match.group(1) or match.group(2), match.group(0))

    return shlex.split(VARIABLE.sub(replaced, command))


def shell_word(command: str) -> str:
    """Return the first word of a command that only a shell would understand, or ''."""
    found = shlex.shlex(command, posix=False, punctuation_chars=False)
    found.whitespace_split = True
    found.commenters = ""
    return next((word for word in found if word in SHELL_WORDS), "")


def without_wandb(command: Sequence[str]) -> List[str]:
    """Return the words without each option that is about Weights & Biases, and its value."""
    kept: List[str] = []
    drop_value = False
    for word in command:
        is_option = word.startswith("-")
        if drop_value and not is_option:
            drop_value = False
            continue
        drop_value = is_option and WANDB in word and "=" not in word
        if not (is_option and WANDB in word):
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
            return int(text) if text.isdigit() and int(text) > 0 else 1
    return 1
