"""Renew the pinned versions, with the hashes of all their files: `make pins`.

    python -m scripts.pins [--upgrade] [--also=WHEEL ...]

Each file of constraints keeps its versions unless ``--upgrade`` is given, and gets what
pyproject.toml needs besides. ``--also`` adds the hash of a wheel that is not on the package index:
PyTorch's builds for CPUs are on an index of their own. Needs uv, which `make pins` installs.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from ipubench.fixtures.machine.files import write_atomically

ROOT = Path(__file__).resolve().parents[1]
#: Installed where PyTorch is the build of the package index, which needs them: no build for CPUs.
CUDA = re.compile(r"(nvidia-(?!pytriton)|cuda-|triton=)")
CUDA_FILE = "constraints-cuda.txt"
#: A pin and its hashes are one entry over several lines.
ENTRY = re.compile(r"^\S.*?(?<!\\)$", re.MULTILINE | re.DOTALL)
PIN = re.compile(r"^[A-Za-z0-9_.-]+==[^\s;\\]+", re.MULTILINE)
NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Environment:
    """One file of constraints, and what it is made of."""

    file: str
    python: str
    extras: Tuple[str, ...]
    more: Tuple[str, ...] = ()


ENVIRONMENTS = (
    Environment(
        "constraints.txt", "3.11", ("torch", "tensorflow", "onnx", "serving", "report", "dev")
    ),
    Environment("constraints-py38.txt", "3.8", ("report",), ("hypothesis", "pytest-xdist")),
    Environment(
        "constraints-tf26.txt", "3.8", (), ("hypothesis", "tensorflow", "tensorflow-probability")
    ),
)


def compiled(environment: Environment, upgrade: bool) -> List[str]:
    """Return the entries of a file, each a pin with its hashes."""
    words = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
    words += [f"--python-version={environment.python}"]
    words += [f"--extra={extra}" for extra in environment.extras]
    with tempfile.TemporaryDirectory() as place:
        kept, wanted = Path(place) / "kept.txt", Path(place) / "wanted.in"
        kept.write_text("" if upgrade else "\n".join(pins(environment.file)), encoding="utf-8")
        # What builds and installs the project itself is pinned like the rest.
        wanted.write_text("\n".join(("setuptools", "wheel", *environment.more)), encoding="utf-8")
        answer = subprocess.run(
            [*words, f"--constraint={kept}", "pyproject.toml", str(wanted)],
            cwd=str(ROOT),
            stdout=subprocess.PIPE,
            check=True,
        )
    return ENTRY.findall(answer.stdout.decode())


def pins(file: str) -> List[str]:
    """Return the pins of a file of constraints without hashes: ``name==version``."""
    return PIN.findall((ROOT / file).read_text(encoding="utf-8"))


def with_hashes(entries: Sequence[str], wheels: Sequence[Path]) -> List[str]:
    """Return entries with the hashes of wheels besides, each at the pin of its package."""
    found: Dict[str, List[str]] = {}
    for wheel in wheels:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        found.setdefault(wheel.name.split("-")[0].lower(), []).append(digest)
    return [
        entry
        + "".join(
            f" \\\n    --hash=sha256:{digest}"
            for digest in found.get(_name(entry), [])
            if digest not in entry
        )
        for entry in entries
    ]


def _name(entry: str) -> str:
    match = NAME.match(entry)
    return match.group().lower().replace("-", "_") if match else ""


def write(file: str, python: str, entries: Sequence[str]) -> None:
    """Write a file of constraints."""
    head = f"# For Python {python}, with the hashes of all files. `make pins` renews it.\n"
    write_atomically(ROOT / file, head + "".join(f"{entry}\n" for entry in entries))
    print(f"{file}: {len(entries)} packages")


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    parser.add_argument("--also", type=Path, action="append", default=[], help="a wheel")
    given = parser.parse_args()
    for environment in ENVIRONMENTS:
        try:
            found = with_hashes(compiled(environment, given.upgrade), given.also)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"{environment.file} was not renewed: {error}")
        cuda = [entry for entry in found if CUDA.match(entry)]
        if cuda:
            write(CUDA_FILE, environment.python, cuda)
        write(environment.file, environment.python, [one for one in found if one not in cuda])


if __name__ == "__main__":
    main()
