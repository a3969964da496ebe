"""The releases that are compared, chosen by their changelogs before anything was measured.

Each has a benchmark of at most ten lines. The first ten have a known change of speed; the words are
those of the changelog. The other eight are releases of which it has no word about speed.
"""

from __future__ import annotations

from typing import NamedTuple, Tuple

FASTER, SLOWER, SAME = "faster", "slower", "no change"


class Release(NamedTuple):
    """A release, the one before it, and a test of both."""

    package: str
    before: str
    now: str
    #: How the release differs in speed, and the words of the changelog, with their place.
    known: str
    words: str
    compiled: bool
    test: str


RELEASES: Tuple[Release, ...] = (
    Release(
        "tomli",
        "1.0.0",
        "1.0.1",
        FASTER,
        "1.0.1: Performance: A significant boost",
        False,
        """\
import tomli

TABLE = "[table{}]\\nkey = 'value'\\nwords = ['a', 'b']\\nnumber = 1\\n"
DOCUMENT = "".join(map(TABLE.format, range(100)))


def test_loads(benchmark):
    benchmark(tomli.loads, DOCUMENT)
""",
    ),
    Release(
        "orjson",
        "3.9.10",
        "3.9.11",
        FASTER,
        "3.9.11: Improve performance of serializing. `str` is significantly faster.",
        True,
        """\
import orjson

DOCUMENT = [f"number {n}, a text of some sixty characters to be written" for n in range(1000)]


def test_dumps(benchmark):
    benchmark(orjson.dumps, DOCUMENT)
""",
    ),
    Release(
        "psutil",
        "5.9.8",
        "6.0.0",
        FASTER,
        "6.0.0: process_iter() no longer pre-emptively checks whether PIDs have been reused. This "
        "makes process_iter() around 20x times faster.",
        True,
        """\
import psutil


def test_process_iter(benchmark):
    benchmark(lambda: list(psutil.process_iter()))
""",
    ),
    Release(
        "pillow",
        "11.0.0",
        "11.1.0",
        FASTER,
        "11.1.0: Wheels are now built against zlib-ng for improved speed. In tests, saving a PNG "
        "was found to be more than twice as fast at higher compression levels.",
        True,
        """\
import io

from PIL import Image

IMAGE = Image.linear_gradient("L").resize((400, 400)).rotate(30)


def test_png(benchmark):
    benchmark(lambda: IMAGE.save(io.BytesIO(), "png", compress_level=9))
""",
    ),
    Release(
        "urllib3",
        "1.25.7",
        "1.25.8",
        FASTER,
        "1.25.8: Optimize _encode_invalid_chars",
        False,
        """\
from urllib3.util.url import parse_url

URL = "http://user@example.com:80/a%20path/with some/words?query=a value&other=%C3%BC#a fragment"


def test_parse_url(benchmark):
    benchmark(parse_url, URL)
""",
    ),
    Release(
        "more-itertools",
        "10.4.0",
        "10.5.0",
        FASTER,
        "10.5.0: all_equal() was optimized",
        False,
        """\
from more_itertools import all_equal

ITEMS = [1] * 1000


def test_all_equal(benchmark):
    benchmark(all_equal, ITEMS)
""",
    ),
    Release(
        "markupsafe",
        "2.1.5",
        "3.0.0",
        FASTER,
        "3.0.0: Speed up escaping plain strings by 40%.",
        True,
        """\
from markupsafe import escape

TEXT = "one and two, and some plain words " * 100


def test_escape(benchmark):
    benchmark(escape, TEXT)
""",
    ),
    Release(
        "django",
        "3.1.14",
        "3.2.25",
        SLOWER,
        "3.2: The default iteration count for the PBKDF2 password hasher is increased from 216,000 "
        "to 260,000.",
        False,
        """\
from django.conf import settings
from django.contrib.auth.hashers import make_password

settings.configure()


def test_make_password(benchmark):
    benchmark(make_password, "password", "salt")
""",
    ),
    Release(
        "pandas",
        "2.1.4",
        "2.2.0",
        SLOWER,
        "2.2.1: Fixed performance regression in Series.combine_first() (which came with 2.2.0)",
        True,
        """\
import pandas as pd

FIRST = pd.Series([None, 1.0] * 5000)
SECOND = pd.Series([2.0] * 10000)


def test_combine_first(benchmark):
    benchmark(FIRST.combine_first, SECOND)
""",
    ),
    Release(
        "jsonschema",
        "3.2.0",
        "4.0.1",
        SLOWER,
        "4.0.0: `uniqueItems` validation may be *slower* in some cases.",
        False,
        """\
from jsonschema import Draft7Validator

VALIDATOR = Draft7Validator({"type": "array", "uniqueItems": True})
ITEMS = list(range(1000))


def test_unique_items(benchmark):
    benchmark(VALIDATOR.validate, ITEMS)
""",
    ),
    Release(
        "six",
        "1.16.0",
        "1.17.0",
        SAME,
        "",
        False,
        """\
import six

WORDS = [b"word %d" % n for n in range(1000)]


def test_ensure_text(benchmark):
    benchmark(lambda: [six.ensure_text(word) for word in WORDS])
""",
    ),
    Release(
        "pyyaml",
        "6.0.1",
        "6.0.2",
        SAME,
        "",
        True,
        """\
import yaml

DOCUMENT = "".join(f"key{n}: [1, two, 3.0]\\n" for n in range(200))


def test_load(benchmark):
    benchmark(yaml.load, DOCUMENT, yaml.CSafeLoader)
""",
    ),
    Release(
        "simplejson",
        "3.19.2",
        "3.19.3",
        SAME,
        "",
        True,
        """\
import simplejson

DOCUMENT = [{"number": n, "words": ["one", "two"], "share": n / 7} for n in range(300)]


def test_dumps(benchmark):
    benchmark(simplejson.dumps, DOCUMENT)
""",
    ),
    Release(
        "ujson",
        "5.9.0",
        "5.10.0",
        SAME,
        "",
        True,
        """\
import ujson

DOCUMENT = [{"number": n, "words": ["one", "two"], "share": n / 7} for n in range(300)]


def test_dumps(benchmark):
    benchmark(ujson.dumps, DOCUMENT)
""",
    ),
    Release(
        "pygments",
        "2.17.1",
        "2.17.2",
        SAME,
        "",
        False,
        """\
from pygments.lexers import PythonLexer

CODE = "def f(x, *, y=None):\\n    return [f'{x}' for _ in range(10)]  # all\\n" * 20


def test_tokens(benchmark):
    benchmark(lambda: list(PythonLexer().get_tokens(CODE)))
""",
    ),
    Release(
        "markupsafe",
        "2.1.4",
        "2.1.5",
        SAME,
        "",
        True,
        """\
from markupsafe import escape

TEXT = "<a href='x'>one & two</a> and some plain words " * 100


def test_escape(benchmark):
    benchmark(escape, TEXT)
""",
    ),
    Release(
        "python-dateutil",
        "2.8.2",
        "2.9.0.post0",
        SAME,
        "",
        False,
        """\
from dateutil.parser import parse


def test_parse(benchmark):
    benchmark(parse, "Thu Sep 25 10:36:28 2003 +0200")
""",
    ),
    Release(
        "sortedcontainers",
        "2.3.0",
        "2.4.0",
        SAME,
        "",
        False,
        """\
from sortedcontainers import SortedList

ITEMS = [n * 7919 % 5003 for n in range(5000)]


def test_sorted_list(benchmark):
    benchmark(lambda: [SortedList(ITEMS).bisect(n) for n in range(10)])
""",
    ),
)
