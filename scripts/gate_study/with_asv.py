"""What does `asv continuous` say of the study's cases, as they are and with real extra work?

    python -m scripts.gate_study.with_asv --asv=VENV/bin/asv --repetitions=20 --only=dense

asv (airspeed velocity) compares two commits of a repository. This makes a throw-away one for each
case: its only module says how much extra work follows a round, and the benchmark is a round of the
case in the suite's own runtime. asv makes an environment of its own, with pip, in which this
checkout and the packages of this interpreter are added to the path. Without --asv it is installed
into a throw-away environment, from the package index that pip is set up for.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import site
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Counter, Dict, List, Sequence

from ipubench.fixtures.data.cache import cache_dir
from ipubench.fixtures.devices.lease import lease
from ipubench.plugins.record.text import Parser
from scripts.gate_study.collect import CASES, ROOT
from scripts.gate_study.commits import GitError, git
from scripts.gate_study.pool import short_name
from scripts.gate_study.tally import share_text
from scripts.markdown_table import markdown_table

#: Branch -> extra work as a share of a round. asv sees another commit for equal code, too.
BRANCHES = {"equal": 0.0, "slower-5": 0.05, "slower-10": 0.10}
#: What asv ends with, and what that means for the later commit.
SAYS = {
    "PERFORMANCE DECREASED": "slower",
    "PERFORMANCE INCREASED": "faster",
    "NOT SIGNIFICANTLY CHANGED": "unchanged",
}
LEASE_SECONDS = 3600.0
BENCHMARK = """\
import functools
import json
import pathlib

FACTS = json.loads((pathlib.Path(__file__).parent / "case.json").read_text())


@functools.lru_cache(maxsize=None)
def round_of_case():
    from scripts.gate_study.standalone import slowed_step

    import slowed

    return slowed_step(FACTS["case"], FACTS["batches"], slowed.CALLS)


def time_round():
    round_of_case()()


time_round.setup = round_of_case
"""
# Runs in asv's environment, in a checkout of the commit that is to be measured.
INSTALL = """\
import pathlib
import shutil
import sysconfig

packages = pathlib.Path(sysconfig.get_path("purelib"))
shutil.copy("slowed.py", str(packages))
shutil.copy("checkout.pth", str(packages))
"""


class AsvError(Exception):
    """asv or what it needs did not run; the text says why."""


def run(command: Sequence[str], folder: Path, **variables: str) -> str:
    """Return the output of a command. Raises AsvError where it fails without a verdict."""
    answer = subprocess.run(
        command,
        cwd=str(folder),
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    output = answer.stdout.decode(errors="replace")
    if answer.returncode and not verdict_of(output):
        raise AsvError(f"{' '.join(command)} ended with {answer.returncode}:\n{output[-3000:]}")
    return output


def verdict_of(output: str) -> str:
    """Return what asv said of the later commit, '' where it said nothing."""
    return next((meaning for words, meaning in SAYS.items() if words in output), "")


def make_repository(folder: Path, case: str, facts: Dict[str, Any]) -> None:
    """Make a repository whose branches have a case with different amounts of extra work."""
    (folder / "benchmarks").mkdir(parents=True)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    nothing = ["python -c pass"]
    configuration = {
        "version": 1,
        "project": "slowed",
        "repo": ".",
        "branches": ["base"],
        "environment_type": "virtualenv",
        "pythons": [version],
        "default_benchmark_timeout": 600,
        "build_command": nothing,
        "install_command": ["in-dir={build_dir} python install.py"],
        "uninstall_command": nothing,
    }
    files = {
        "asv.conf.json": json.dumps(configuration, indent=1),
        "benchmarks/__init__.py": "",
        "benchmarks/bench_case.py": BENCHMARK,
        "benchmarks/case.json": json.dumps({"case": case, **facts}),
        "install.py": INSTALL,
        "checkout.pth": "".join(
            f"import site; site.addsitedir({path!r})\n"
            for path in (str(ROOT), *site.getsitepackages())
        ),
        ".gitignore": "env/\nresults/\n.asv/\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    git(folder, "init", "--quiet", "--initial-branch=base")
    _commit(folder, "base", 0)
    for branch, share in BRANCHES.items():
        git(folder, "checkout", "--quiet", "-b", branch, "base")
        _commit(folder, branch, round(share * facts["calls"]))
    git(folder, "checkout", "--quiet", "base")


def _commit(folder: Path, name: str, calls: int) -> None:
    (folder / "slowed.py").write_text(f'"""{name}"""\n\nCALLS = {calls}\n', encoding="utf-8")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", name)


def install_asv(folder: Path) -> str:
    """Return the program asv of an environment that is made for it."""
    run([sys.executable, "-m", "venv", str(folder)], folder.parent)
    run([str(folder / "bin" / "pip"), "install", "--quiet", "asv", "virtualenv"], folder.parent)
    return str(folder / "bin" / "asv")


def compare(asv: str, folder: Path, branch: str, options: argparse.Namespace) -> str:
    """Return what asv says of a branch, compared with the base."""
    words = [f"--factor={options.factor:g}", f"--launch-method={options.launch_method}"]
    words += ["--interleave-rounds"] if options.interleave_rounds else []
    output = run([asv, "continuous", *words, "base", branch], folder, **_variables(folder))
    verdict = verdict_of(output)
    if not verdict or "failed" in output:
        raise AsvError(f"asv continuous measured nothing:\n{output[-3000:]}")
    return verdict


def _variables(folder: Path) -> Dict[str, str]:
    """Return the environment of asv: what it knows of the machine is written to the home folder."""
    python = str(Path(sys.executable).resolve().parent)
    return {
        "HOME": str(folder / ".asv"),
        "IPUBENCH_CACHE_DIR": str(cache_dir()),
        "PATH": os.pathsep.join([python, os.environ.get("PATH", "")]),
    }


def study(case: str, asv: str, folder: Path, options: argparse.Namespace) -> List[str]:
    """Return the row of a case."""
    module = "scripts.gate_study.standalone"
    said = run([sys.executable, "-m", module, case], ROOT).splitlines()
    facts = json.loads(next(line for line in reversed(said) if line.startswith("{")))
    make_repository(folder, case, facts)
    (folder / ".asv").mkdir()
    run([asv, "machine", "--yes"], folder, **_variables(folder))
    found: Dict[str, Counter[str]] = {branch: collections.Counter() for branch in BRANCHES}
    started = time.monotonic()
    for number in range(options.repetitions):
        for branch in random.sample(list(BRANCHES), len(BRANCHES)):
            begun = time.monotonic()
            verdict = compare(asv, folder, branch, options)
            found[branch][verdict] += 1
            seconds = time.monotonic() - begun
            print(
                f"{short_name(case)} {number + 1}: {branch} {verdict}, {seconds:.0f} s", flush=True
            )
    each = (time.monotonic() - started) / (options.repetitions * len(BRANCHES))
    return row(case, found, each)


def row(case: str, found: Dict[str, Counter[str]], seconds: float) -> List[str]:
    """Return the cells of a case: how often each branch was called slower."""
    cells = []
    for counts in found.values():
        trials = sum(counts.values())
        cells.append(share_text(counts["slower"], trials, trials))
    return [short_name(case), *cells, f"{seconds:.0f} s"]


def main() -> None:
    """Read the command line, let asv compare, print the table in Markdown."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--asv", default="", help="the program (installed where not given)")
    parser.add_argument("--repetitions", type=int, default=20, help="per branch (20)")
    parser.add_argument("--only", default="", help="part of the cases' names (all)")
    parser.add_argument("--factor", type=float, default=1.05, help="of asv (1.05)")
    parser.add_argument("--interleave-rounds", action="store_true", help="of asv")
    parser.add_argument("--launch-method", default="auto", help="of asv (auto)")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in case]
    if not cases:
        parser.error(f"--only={options.only}: no case has it in its name")
    rows = []
    with tempfile.TemporaryDirectory(prefix="ipubench-asv-") as folder:
        try:
            asv = options.asv or install_asv(Path(folder) / "asv")
            asv = str(Path(asv).absolute())
            with lease(("cpu",), LEASE_SECONDS, print):
                for number, case in enumerate(cases):
                    rows.append(study(case, asv, Path(folder) / str(number), options))
        except (AsvError, GitError, OSError) as error:
            raise SystemExit(str(error)) from None
    head = ["asv continuous", "equal called slower", "5% slower", "10% slower", "each took"]
    print(markdown_table(head, rows))


if __name__ == "__main__":
    main()
