"""Write the JSON schema of baselines and reports, which are types of ours.

    python -m scripts.schema FILE

The documentation's build writes it too (scripts/docs_site.py).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict

import msgspec

from ipubench.plugins.baseline.format import Document
from ipubench.plugins.record.files import write_json


def schema() -> Dict[str, Any]:
    """Return the schema of a document."""
    found: Dict[str, Any] = msgspec.json.schema(Document)
    # A file has these next to our record.
    del found["$defs"]["ExtraInfo"]["properties"]["others"]
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": "A baseline or a report of ipubench, format 2", **found}


if __name__ == "__main__":
    write_json(Path(sys.argv[1]), schema())
