"""Renew the pinned versions, with the hashes of all their files: `make pins`.

    python -m scripts.pins [--upgrade] [--also=WHEEL ...]

Each file of constraints keeps its versions unless ``--upgrade`` is given, and gets what
pyproject.toml needs besides. ``--also`` names wheels that are not on the package index and are
taken where pip finds them: PyTorch's builds for CPUs, whose hashes constraints-cpu.txt keeps. Needs
uv, which `make pins` installs.
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
CUDA_FILE, CPU_FILE = "constraints-cuda.txt", "constraints-cpu.txt"
#: A pin and its hashes are one entry over several lines.
ENTRY = re.compile(r"^\S.*?(?<!\\)$", re.MULTILINE | re.DOTALL)
PIN = re.compile(r"^[A-Za-z0-9_.-]+==[^\s;\\]+", re.MULTILINE)


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
        now = [] if upgrade else [*pins(environment.file), *pins(CUDA_FILE)]
        kept.write_text("\n".join(now), encoding="utf-8")
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


def of_wheels(wheels: Sequence[Path]) -> List[str]:
    """Return the entries of wheels, each by its own version and hash."""
    found: Dict[str, List[str]] = {}
    for wheel in wheels:
        name, version, *_ = wheel.name.split("-")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        found.setdefault(f"{name}=={version}", []).append(f" \\\n    --hash=sha256:{digest}")
    return [pin + "".join(hashes) for pin, hashes in sorted(found.items())]


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
            found = compiled(environment, given.upgrade)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"{environment.file} was not renewed: {error}")
        cuda = [entry for entry in found if CUDA.match(entry)]
        if cuda:
            write(CUDA_FILE, environment.python, cuda)
        write(environment.file, environment.python, [one for one in found if one not in cuda])
    if given.also:
        write(CPU_FILE, ENVIRONMENTS[0].python, of_wheels(given.also))


if __name__ == "__main__":
    main()
