"""Write the option tables of docs/reference from the declarations.

Run ``python -m scripts.option_tables``; tests/docs/test_option_tables.py fails if a table is out of
date.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator, List, Tuple, Type

from ipubench import bench_inference, bench_kernels, bench_training
from ipubench.fixtures.case.options import CaseConfig, option_types
from ipubench.fixtures.case.values import type_name
from ipubench.plugins.command_line.options import Option, sections
from ipubench.plugins.listing.describe import meaning
from scripts.markdown_table import markdown_table
from scripts.steps import families

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
PAGES = {
    "options-inference.md": ("inference and serving", bench_inference),
    "options-training.md": ("training", bench_training),
    "options-kernels.md": ("kernels", bench_kernels),
}
#: A row that as many functions have alike is common.
COMMON = 2
GENERATED = (
    "<!-- python -m scripts.option_tables writes this page from the declarations. -->",
    "",
)


def pages() -> Dict[str, str]:
    """Return file name -> text for every generated page."""
    texts = {"command-line.md": _command_line()}
    texts.update({name: _options(*about) for name, about in PAGES.items()})
    return texts


def _command_line() -> str:
    lines = [
        "# Command-line options",
        "",
        *GENERATED,
        "`pytest --help-ipubench` prints these. `--set` reaches the options of cases, which the",
        "following pages list. Write paths with an equals sign: `--report=DIR`.",
        "",
        "Each option can also be spelled `--ipubench-NAME`, such as `--ipubench-device=cpu`. In",
        "[another repository](../how-to/own-repository.md) a conftest.py, or another plugin, may",
        "have an option of the same name. Then only the long spelling is ours, and a line of",
        "pytest's header names it.",
    ]
    for section in sections():
        rows = [_row(option) for option in section.options if not option.is_hidden]
        lines += ["", f"## {section.title[0].upper()}{section.title[1:]}", ""]
        lines.append(markdown_table(("option", "values", "default", "meaning"), rows))
    return "\n".join(lines) + "\n"


def _row(option: Option) -> List[str]:
    settings, default = option.settings, option.settings.get("default")
    values = ", ".join(settings.get("choices") or [settings.get("metavar", "")])
    return [
        f"`--{option.name}`",
        f"`{values}`" if values else "",
        "" if default in (None, [], False) else f"`{default}`",
        settings["help"].replace("%%", "%"),
    ]


def _options(title: str, package: ModuleType) -> str:
    lines = [
        f"# Options of {title}",
        "",
        *GENERATED,
        "`--set=OPTION=VALUE` changes an option. The tables show the default that each program",
        "declares; `--describe` prints the values that the selected cases have.",
    ]
    tables = {function: _rows(cls) for function, cls in _functions(package)}
    often = Counter(row for rows in tables.values() for row in rows)
    common = [row for row, count in often.items() if count >= COMMON]
    headings = ("option", "type", "default", "meaning")
    if common:
        lines += ["", "## Common options", "", "Options that several functions have alike:", ""]
        lines.append(markdown_table(headings, common))
    for function, rows in tables.items():
        path = str(function.__module__).split(".", 1)[1].replace(".", "/")
        own = [row for row in rows if row not in common]
        shared = [row[0] for row in rows if row in common]
        lines += ["", f"## {function.__name__}", "", f"`{path}.py`", ""]
        lines += [f"[Common options](#common-options): {', '.join(shared)}", ""] if shared else []
        lines += [markdown_table(headings, own)] if own else []
    return "\n".join(lines).rstrip() + "\n"


def _rows(cls: Type[CaseConfig]) -> List[Tuple[str, ...]]:
    names = option_types(cls)
    return [
        (f"`{field.name}`", type_name(names[field.name]), _code(field.default), meaning(field))
        for field in dataclasses.fields(cls)
        if field.name != "name"
    ]


def _functions(package: ModuleType) -> Iterator[Tuple[Any, Type[CaseConfig]]]:
    """Yield each bench function of a folder with the class of its cases."""
    for module in _modules(package):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("bench_") and function.__module__ == module.__name__:
                config, _ = next(families(function)).configurations[0]
                yield function, type(config)


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def _code(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
