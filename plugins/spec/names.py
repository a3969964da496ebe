"""Names out of a file as names of cases and folders."""

from __future__ import annotations

import hashlib
import re

LONGEST = 200  # characters; a file's name has at most 255, and options of a run are added
DIGITS, DIGITS_OF_CUT = 6, 12  # of the digest; many long names begin alike


def safe_name(text: str) -> str:
    """Return a text as the name of one file: letters, digits, ``-``, ``_`` and ``.``.

    Where that is another text a digest is added, so that two texts never become one name: for other
    characters, for more than 200, and for dots at the beginning, which lead to another folder or
    hide a file.
    """
    safe = re.sub(r"^\.+|[^A-Za-z0-9_.-]", "_", text)[:LONGEST] or "_"
    if safe == text:
        return text
    digits = DIGITS_OF_CUT if len(text) > LONGEST else DIGITS
    # What a command line cannot decode is half a character.
    digest = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
    return f"{safe}.{digest[:digits]}"
