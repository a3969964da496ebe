"""Install what a file of constraints pins, checked by its hashes, and then the project.

    .venv/bin/python scripts/install.py constraints/py311.txt

Run it with the Python to install into; it needs only the standard library. uv installs, or pip if
uv fails. Neither can check hashes and install a project in place at once, so these are two steps.
The pinned build tools, which are installed first, build what has to be built here: an isolated
build would fetch others without a known hash.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Dict, List, Sequence

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "constraints"
CUDA_FILE, CPU_FILE, UV_FILE = FILES / "cuda.txt", FILES / "cpu.txt", FILES / "uv.txt"
PIP = (sys.executable, "-m", "pip", "install")
UV = (sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable)
HASHED = ("--no-build-isolation", "--require-hashes", "--no-deps", "--requirement")
BUILDING = ("setuptools", "wheel", "hatchling", "editables")
# The frameworks of the constraints need it; make's environments of Python 3.8 have their own files.
OLDEST = (3, 10)
EXTRAS = "suite,torch,tensorflow,onnx,serving,report,dev"
#: pip's settings, and uv's variables for the same.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
#: Not needed: packages for C++ extensions, notebooks, Intel's GPUs and tests of packages, 0.6 GB.
UNUSED = (
    "tensorflow/include",
    "clang/native",
    "openvino/include",
    "torch/test",
    "torch/bin/test_*",
    "torch/bin/protoc*",
    "onnx/backend/test",
    "numpy/**/tests",
    "scipy/**/tests",
    "openvino/libs/libopenvino_intel_[gn]pu_plugin.so",
    "openvino/libs/cache.json",
)
#: Imports to compile before the first run, one process per line.
COMPILED = (
    "numpy, scipy, pytest, torch, torch._dynamo, torch._inductor.compile_fx",
    "tensorflow, tf_keras, tensorflow_probability, openvino, onnxruntime, tritonclient.grpc",
)


class Installer:
    """Runs uv, and pip after uv's first failure."""

    def __init__(self) -> None:
        """Fetch a wheel of uv, checked by its hash."""
        announce([str(UV_FILE)])
        fetched = run(*PIP, "--only-binary=:all:", *HASHED, str(UV_FILE))
        self.settings = {} if fetched.returncode else uv_settings()
        self.uses_uv = not fetched.returncode
        if not self.uses_uv:
            fell_back(fetched)

    def install(self, *words: str) -> None:
        """Install. Exits with pip's exit code if pip fails too."""
        announce(words)
        if self.uses_uv:
            answer = run(*UV, *words, **self.settings)
            if not answer.returncode:
                return
            self.uses_uv = False
            fell_back(answer)
        pip(*words)

    def could_install(self, *words: str) -> bool:
        """Return whether uv, or pip, which may know more indexes, installed everything."""
        announce(words)
        if self.uses_uv and not run(*UV, *words, **self.settings).returncode:
            return True
        return not run(*PIP, *words).returncode


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program and print what it downloads; return all that it printed."""
    process = subprocess.Popen(
        words,
        cwd=str(ROOT),
        env={**variables, **os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None
    lines: List[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.lstrip().startswith(("Downloading ", "Building ")):
            print("   ", line.strip(), flush=True)
    return subprocess.CompletedProcess(words, process.wait(), "".join(lines))


def announce(words: Sequence[str]) -> None:
    """Print what the last of an installer's words installs."""
    print(f"installing {Path(words[-1]).name or 'this project'}", flush=True)


def pip(*words: str) -> None:
    """Run pip. Exits with its exit code if it fails."""
    answer = run(*PIP, *words)
    if answer.returncode:
        print(answer.stdout, file=sys.stderr)
        sys.exit(answer.returncode)


def fell_back(answer: subprocess.CompletedProcess[str]) -> None:
    """Print that pip installs instead of uv, and why."""
    lines = [line.strip() for line in answer.stdout.splitlines()]
    lines = [line for line in lines if line.lower().startswith("error")]
    reason = lines[0] if lines else f"exit code {answer.returncode}"
    print(f"pip installs, which takes minutes, because uv could not: {reason}", flush=True)


def uv_settings() -> Dict[str, str]:
    """Return pip's settings as variables for uv, which reads none of pip's."""
    # pip searches all indexes and picks the file by its hash.
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    text = run(sys.executable, "-m", "pip", "config", "list").stdout
    for section in ("global", "install", ":env:"):  # the last one counts
        for name, value in re.findall(rf"^{section}\.([a-z-]+)=(.+)$", text, re.MULTILINE):
            if name in SETTINGS:
                between = "," if name == "find-links" else " "
                found[SETTINGS[name]] = between.join(ast.literal_eval(value).split())
    return found


def main() -> None:
    """Install; the file's first line names its Python version."""
    file = ROOT / sys.argv[1]
    text = file.read_text(encoding="utf-8")
    pinned_for = re.search(r"For Python (\d+)\.(\d+)", text)
    version = sys.version_info[:2]
    if pinned_for is not None and version < OLDEST <= tuple(map(int, pinned_for.groups())):
        # No file of constraints can be met, which pip would report as ResolutionImpossible.
        sys.exit(
            f"Python {version[0]}.{version[1]} is too old for {file.name}: `make setup "
            "PYTHON=python3.11` makes the environment of this project. For the cases on an IPU, "
            "install into an environment with the Poplar SDK's wheels, without make: `pip install "
            "--editable '.[suite,ipu]'` (docs/how-to/ipu.md)"
        )
    if pinned_for is not None and version < tuple(map(int, pinned_for.groups())):
        print(
            f"{file.name} is for Python {'.'.join(pinned_for.groups())}; on this older one "
            "pip looks for the same versions, and its files are installed WITHOUT A HASH CHECK",
            flush=True,
        )
        without_hashes(text)
        return
    installer = Installer()
    if re.search("^torch==", text, re.MULTILINE) and has_builds_for_cpus(installer):
        text = without_cuda(text)
    with tempfile.TemporaryDirectory() as folder:
        for part in (what_builds(text), text):
            wanted = Path(folder) / file.name
            wanted.write_text(part, encoding="utf-8")
            installer.install(*HASHED, str(wanted))
    if needs_cuda():
        installer.install(*HASHED, str(CUDA_FILE))
    installer.install("--no-deps", "--no-build-isolation", "--editable", ".")
    if installer.uses_uv:
        run(sys.executable, "-m", "pip", "uninstall", "--yes", "uv")
    remove_unused()
    if installer.uses_uv:
        compile_what_is_imported()


def has_builds_for_cpus(installer: Installer) -> bool:
    """Install the smaller builds of PyTorch and TensorFlow, if PyTorch's is found."""
    if not installer.could_install(*HASHED, str(CPU_FILE)):
        return False
    if is_installed("tensorflow"):  # from an earlier setup; the two own the same files
        names = ("tensorflow", "tensorflow-cpu")
        run(sys.executable, "-m", "pip", "uninstall", "--yes", *names)
        return installer.could_install(*HASHED, str(CPU_FILE))
    return True


def without_cuda(text: str) -> str:
    """Return constraints without the packages that only CUDA builds need."""
    return re.sub(r"^(torch|tensorflow)==.*(\n .*)*\n", "", text, flags=re.MULTILINE)


def what_builds(text: str) -> str:
    """Return the entries of the build tools in a file of constraints, each with its hashes."""
    names = "|".join(BUILDING)
    entries = re.finditer(rf"^({names})==.*(\n .*)*\n", text, re.MULTILINE)
    return "".join(entry.group() for entry in entries)


def without_hashes(text: str) -> None:
    """Let pip choose within a file's versions."""
    lines: List[str] = re.findall(r"^[A-Za-z0-9_.-]+==[^\s;\\]+", text, re.MULTILINE)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(lines) + "\n")
        constraints.flush()
        pinned = ("--no-build-isolation", "--constraint", constraints.name)
        pip("--only-binary=:all:", *pinned, *BUILDING)
        pip(*pinned, "--editable", f".[{EXTRAS}]")


def is_installed(name: str) -> bool:
    """Return whether a package is installed."""
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def needs_cuda() -> bool:
    """Return whether PyTorch is the package index's build, which needs CUDA's libraries."""
    return (
        sys.platform == "linux"
        and is_installed("torch")
        and "+" not in importlib.metadata.version("torch")
    )


def compile_what_is_imported() -> None:
    """Import what the suite imports, so Python compiles only that: uv compiles all or nothing."""
    print("compiling what the suite imports", flush=True)
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"import {names}"],
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for names in COMPILED
    ]
    for process in processes:
        process.wait()  # If a package is missing, the process ends earlier.


def remove_unused() -> None:
    """Remove large parts of packages that this project cannot use."""
    packages = Path(sysconfig.get_path("platlib"))
    for pattern in UNUSED:
        for path in list(packages.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(str(path), ignore_errors=True)
            elif path.exists():
                path.unlink()


if __name__ == "__main__":
    main()
