"""Install what a file of constraints pins, checked by its hashes, and then the project itself.

    .venv/bin/python scripts/install.py constraints.txt

Run by the Python that is to have it, with nothing but the standard library. pip cannot check hashes
and install a project in place at once, so these are two steps.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List

ROOT = Path(__file__).resolve().parents[1]
CUDA_FILE, CPU_FILE = ROOT / "constraints-cuda.txt", ROOT / "constraints-cpu.txt"
PIP = (sys.executable, "-m", "pip", "install", "--quiet")
EXTRAS = "torch,tensorflow,onnx,serving,report,dev"


def pip(*words: str) -> None:
    """Run pip; end with its exit code where it fails."""
    code = subprocess.run([*PIP, *words], cwd=str(ROOT), check=False).returncode
    if code:
        sys.exit(code)


def hashed(file: Path) -> None:
    """Install exactly what a file pins."""
    # It is complete, and looking for what else is needed would find nothing.
    pip("--require-hashes", "--no-deps", "--requirement", str(file))


def hashed_where_found(file: Path) -> None:
    """Install what a file pins, unless pip finds none of it: PyTorch's smaller build for CPUs."""
    words = [*PIP, "--require-hashes", "--no-deps", "--requirement", str(file)]
    subprocess.run(words, cwd=str(ROOT), stderr=subprocess.DEVNULL, check=False)


def main() -> None:
    """Install; the file's first line says which Python it is for."""
    file = ROOT / sys.argv[1]
    text = file.read_text(encoding="utf-8")
    pinned_for = re.search(r"For Python (\d+)\.(\d+)", text)
    version = sys.version_info[:2]
    if pinned_for is not None and version < tuple(map(int, pinned_for.groups())):
        print(
            f"{file.name} is for Python {'.'.join(pinned_for.groups())}; on this older one "
            "pip looks for the same versions, and not at their hashes"
        )
        without_hashes(text)
        return
    if re.search("^torch==", text, re.MULTILINE):
        hashed_where_found(CPU_FILE)
    hashed(file)
    if needs_cuda():
        hashed(CUDA_FILE)
    pip("--no-deps", "--no-build-isolation", "--editable", ".")


def without_hashes(text: str) -> None:
    """Let pip choose, within the versions of a file."""
    lines: List[str] = re.findall(r"^[A-Za-z0-9_.-]+==[^\s;\\]+", text, re.MULTILINE)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(lines) + "\n")
        constraints.flush()
        pip("--constraint", constraints.name, "--editable", f".[{EXTRAS}]")


def needs_cuda() -> bool:
    """Tell whether PyTorch is the build of the package index, which needs CUDA's libraries."""
    try:
        return "+" not in importlib.metadata.version("torch") and sys.platform == "linux"
    except importlib.metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    main()
