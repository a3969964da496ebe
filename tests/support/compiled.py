"""What is compiled of the suite's modules, for runs in other checkouts.

Such a run imports the suite anew in each process. A fresh worktree has nothing compiled: reading,
compiling and making dataclasses are most of what its processes cost. A process that is forked from
one that calls ``keep_compiled`` finds code by the text that it was compiled from, wherever that is.
"""

from __future__ import annotations

import _imp
import contextlib
import dataclasses
import importlib.machinery
import marshal
import os
from pathlib import Path
from types import CodeType
from typing import Any, Dict, Optional, Set

import _pytest.assertion.rewrite as rewriting
import pytest


def keep_compiled(root: Path) -> None:
    """Have this process's forks compile nothing that a checkout of the same text has compiled."""
    _keep_dataclasses(root)
    package = root / "ipubench"
    plain: Dict[bytes, CodeType] = {}
    rewritten: Dict[bytes, CodeType] = {}
    read_rewritten: Any = rewriting._read_pyc
    for folder, _, names in os.walk(str(package), followlinks=True):
        for path in (Path(folder, name) for name in names if name.endswith(".py")):
            text = path.read_bytes()
            code = importlib.machinery.SourceFileLoader(path.stem, str(path)).get_code(path.stem)
            assert code is not None
            plain[text] = code
            compiled = rewriting.get_cache_dir(path) / (path.stem + rewriting.PYC_TAIL)
            code = read_rewritten(path, compiled)
            if code is not None:
                rewritten[text] = code

    def kept(codes: Dict[bytes, CodeType], path: Any) -> Optional[CodeType]:
        with contextlib.suppress(OSError):
            code = codes.get(Path(path).read_bytes())
            if code is not None:
                fix: Any = _imp
                fix._fix_co_filename(code, str(path))  # this process's copy
                return code
        return None

    class Loader(importlib.machinery.SourceFileLoader):
        read = importlib.machinery.SourceFileLoader.get_code

        def get_code(self, fullname: str) -> Optional[CodeType]:
            ours = fullname.partition(".")[0] == "ipubench"
            return (ours and kept(plain, self.path)) or Loader.read(self, fullname)

    patched: Any = importlib.machinery.SourceFileLoader
    patched.get_code = Loader.get_code
    patched = rewriting
    patched._read_pyc = lambda path, *more: kept(rewritten, path) or read_rewritten(path, *more)


def _keep_dataclasses(root: Path) -> None:
    """Compile the methods of the suite's dataclasses once; each is a text that is executed."""
    patched: Any = dataclasses
    texts: Set[str] = set()
    codes: Dict[str, CodeType] = {}

    def execute(text: str, *names: Any) -> None:
        texts.add(text)
        exec(codes.get(text) or _compile(text), *names)  # noqa: S102  as dataclasses does

    patched.exec = execute
    there, here = os.pipe()
    if not os.fork():
        os.chdir(str(root))
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        code = pytest.main(["-VV", "-p", "no:cacheprovider"])
        with open(here, "wb") as pipe:
            pipe.write(marshal.dumps((int(code), texts)))
        os._exit(0)
    os.close(here)
    with open(there, "rb") as answer:
        code, texts = marshal.loads(answer.read())  # noqa: S302  of our own fork
    os.wait()
    assert code == 0, f"pytest -VV ended with {code}"
    codes.update((text, _compile(text)) for text in texts)


def _compile(text: str) -> CodeType:
    code: CodeType = compile(text, "<string>", "exec", dont_inherit=True)
    return code
