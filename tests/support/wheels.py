"""Wheels of one module, and environments in which one is installed, without an index."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict, Sequence


def wheel(folder: Path, name: str, version: str, code: str, requires: Sequence[str] = ()) -> Path:
    """Write a wheel with one module; return its path."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": "\n".join([*lines, ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(str(path), "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return path


def install(path: Path, site: Path) -> None:
    """Install a wheel as an installer would."""
    with zipfile.ZipFile(str(path)) as archive:
        archive.extractall(str(site))


def environment(folder: Path) -> Path:
    """Make a virtual environment that also has this one's packages; return its folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (site / "more.pth").write_text(
        "".join(f"import site; site.addsitedir({f!r})\n" for f in folders)
    )
    return site


def only_from(folder: Path) -> Dict[str, str]:
    """Return the variables with which pip and uv install from a folder alone."""
    tools = ("PIP", "UV")
    return {
        f"{one}_{name}": value
        for one in tools
        for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(folder)))
    }
