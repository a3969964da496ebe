"""Renew the pinned versions, with the hashes of all their files: `make pins`.

    python -m scripts.pins [--upgrade] [--also=WHEEL ...]

Each file of constraints keeps its versions unless ``--upgrade`` is given, and gets what
pyproject.toml needs besides. constraints/cpu.txt gets TensorFlow's build for CPUs in the version of
constraints/py311.txt. ``--also`` names wheels that are not on the package index but that pip finds
elsewhere: PyTorch's builds for CPUs, whose hashes go to constraints/cpu.txt too. Needs uv, which
`make pins` installs by its hash in constraints/uv.txt.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from ipubench.fixtures.machine.files import write_atomically
from ipubench.plugins.record.text import Parser
from scripts.install import BUILDING

ROOT = Path(__file__).resolve().parents[1]
#: Needed only by the package index's build of PyTorch, not by a build for CPUs.
CUDA = re.compile(r"(nvidia-(?!pytriton)|cuda-|triton=)")
CUDA_FILE, CPU_FILE = "constraints/cuda.txt", "constraints/cpu.txt"
UV_FILE, UV_PYTHON = "constraints/uv.txt", "3.8"
COMPILE = ("uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes")
#: A pin and its hashes form one entry of several lines.
ENTRY = re.compile(r"^\S.*?(?<!\\)$", re.MULTILINE | re.DOTALL)
PIN = re.compile(r"^[A-Za-z0-9_.-]+==[^\s;\\]+", re.MULTILINE)


@dataclass(frozen=True)
class Environment:
    """One file of constraints and its inputs."""

    file: str
    python: str
    extras: Tuple[str, ...]
    more: Tuple[str, ...] = ()


ENVIRONMENTS = (
    Environment(
        "constraints/py311.txt",
        "3.11",
        ("suite", "torch", "tensorflow", "onnx", "serving", "report", "dev"),
    ),
    Environment(
        "constraints/py38.txt", "3.8", ("suite", "report"), ("build", "hypothesis", "pytest-xdist")
    ),
    Environment(
        "constraints/tf26.txt",
        "3.8",
        ("suite",),
        ("hypothesis", "scipy", "tensorflow", "tensorflow-probability"),
    ),
)


def compiled(environment: Environment, upgrade: bool) -> List[str]:
    """Return the entries of a file, one pin with its hashes each."""
    words = [*COMPILE, f"--python-version={environment.python}"]
    words += [f"--extra={extra}" for extra in environment.extras]
    with tempfile.TemporaryDirectory() as place:
        kept, wanted = Path(place) / "kept.txt", Path(place) / "wanted.in"
        now = [] if upgrade else [*pins(environment.file), *pins(CUDA_FILE)]
        kept.write_text("\n".join(now), encoding="utf-8")
        # Tools that build and install the project are pinned as well.
        wanted.write_text("\n".join((*BUILDING, *environment.more)), encoding="utf-8")
        answer = subprocess.run(
            [*words, f"--constraint={kept}", "pyproject.toml", str(wanted)],
            cwd=str(ROOT),
            stdout=subprocess.PIPE,
            check=True,
        )
    return ENTRY.findall(answer.stdout.decode())


def alone(requirement: str, python: str) -> List[str]:
    """Return the entry of a package without its dependencies."""
    answer = subprocess.run(
        [*COMPILE, "--no-deps", f"--python-version={python}", "-"],
        cwd=str(ROOT),
        input=requirement.encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return ENTRY.findall(answer.stdout.decode())


def pins(file: str) -> List[str]:
    """Return the pins ``name==version`` of a file of constraints, without hashes."""
    return PIN.findall((ROOT / file).read_text(encoding="utf-8"))


def entries(file: str) -> List[str]:
    """Return the entries of a file of constraints."""
    return [one for one in ENTRY.findall((ROOT / file).read_text(encoding="utf-8")) if "==" in one]


def of_wheels(wheels: Sequence[Path]) -> List[str]:
    """Return an entry for each wheel, with its version and hash."""
    found: Dict[str, List[str]] = {}
    for wheel in wheels:
        name, version, *_ = wheel.name.split("-")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        found.setdefault(f"{name}=={version}", []).append(f" \\\n    --hash=sha256:{digest}")
    return [pin + "".join(hashes) for pin, hashes in sorted(found.items())]


def write(file: str, python: str, found: Sequence[str]) -> None:
    """Write a file of constraints."""
    head = f"# For Python {python}, with the hashes of all files. `make pins` renews it.\n"
    write_atomically(ROOT / file, head + "".join(f"{entry}\n" for entry in found))
    print(f"{file}: {len(found)} packages")


def write_builds_for_cpus(wheels: Sequence[Path]) -> None:
    """Write PyTorch's build for CPUs (from these wheels, or unchanged) and TensorFlow's."""
    python = ENVIRONMENTS[0].python
    (version,) = [
        pin.split("==")[1] for pin in pins(ENVIRONMENTS[0].file) if pin.startswith("tensorflow==")
    ]
    kept = [one for one in entries(CPU_FILE) if not one.startswith("tensorflow-cpu==")]
    # PyTorch comes first: if pip does not find it, pip does not download TensorFlow in vain.
    found = [*(of_wheels(wheels) or kept), *alone(f"tensorflow-cpu=={version}", python)]
    write(CPU_FILE, python, found)


def main() -> None:
    """Write the files, as the command line asks."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    parser.add_argument("--also", type=Path, action="append", default=[], help="a wheel")
    given = parser.parse_args()
    file = ""
    try:
        for environment in ENVIRONMENTS:
            file = environment.file
            found = compiled(environment, given.upgrade)
            cuda = [entry for entry in found if CUDA.match(entry)]
            if cuda:
                write(CUDA_FILE, environment.python, cuda)
            write(file, environment.python, [one for one in found if one not in cuda])
        file = CPU_FILE
        write_builds_for_cpus(given.also)
        file = UV_FILE
        wanted = "uv" if given.upgrade else pins(UV_FILE)[0]
        write(UV_FILE, UV_PYTHON, alone(wanted, UV_PYTHON))
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{file} was not renewed: {error}")


if __name__ == "__main__":
    main()
