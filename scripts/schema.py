"""Write the JSON schemas of baselines and of verdicts, which are types of ours.

    python -m scripts.schema DIR

The documentation's build writes them too (scripts/docs_site.py).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict

import msgspec

from ipubench.plugins.baseline.format import Document
from ipubench.plugins.record.files import write_json
from ipubench.plugins.report.verdicts import Verdicts
from ipubench.plugins.results.run_facts import KINDS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def of_documents() -> Dict[str, Any]:
    """Return the schema of a baseline, or of a report's baseline.json."""
    found: Dict[str, Any] = msgspec.json.schema(Document)
    # A file has these next to our record.
    del found["$defs"]["ExtraInfo"]["properties"]["others"]
    return {"$schema": DIALECT, "title": "A baseline or a report of ipubench, format 2", **found}


def of_verdicts() -> Dict[str, Any]:
    """Return the schema of verdicts.json."""
    found: Dict[str, Any] = msgspec.json.schema(Verdicts)
    found["$defs"]["CaseVerdict"]["properties"]["kind"]["enum"] = list(KINDS)
    return {"$schema": DIALECT, "title": "The verdicts of ipubench, format 1", **found}


def write(folder: Path) -> None:
    """Write all schemas into a folder."""
    write_json(folder / "schema.json", of_documents())
    write_json(folder / "verdicts-schema.json", of_verdicts())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
