"""The templates of this folder: every value in a page or a comment is text, never markup.

Jinja escapes values for HTML. In Markdown, whose tables and comments may hold HTML too, each
character that could be markup of either becomes its number.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping

from ipubench.plugins.record.files import storable

if TYPE_CHECKING:
    from jinja2 import Environment

WEB = Path(__file__).parent


def render(name: str, values: Mapping[str, object]) -> str:
    """Return a template with its values, each escaped unless a template marks it as safe.

    Raises jinja2.UndefinedError for a value that the template needs and was not given.
    """
    return _environment(name.endswith(".md")).get_template(name).render(**values)


def script(*names: str) -> str:
    """Return some files of this folder, one after the other, for a style or script element."""
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in names)


def is_installed() -> bool:
    """Return whether the library of the templates can be imported."""
    return importlib.util.find_spec("jinja2") is not None


def escape_markdown(text: str) -> str:
    """Return text that no Markdown and no HTML reads as markup."""
    return re.sub(r"[^\w .,:;/+%()=±🔴🟡🟢⚪-]|_", lambda found: f"&#{ord(found.group())};", text)


@functools.lru_cache(maxsize=None)
def _environment(of_markdown: bool) -> Environment:
    # Imported late: each run of the suite imports this module, and few write a page.
    import jinja2
    from markupsafe import Markup

    def as_markdown(value: Any) -> Any:
        if isinstance(value, Markup):
            return value
        return Markup(escape_markdown(str(value)))  # noqa: S704 - this is the escaping

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(WEB)),
        autoescape=True,
        finalize=as_markdown if of_markdown else None,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters["finite"] = storable
    return environment
