"""Compares the releases of releases.py by several tools, and writes the page of the results.

    python -m scripts.proof                          # quiet: writes results.json and the page
    python -m scripts.proof --busy=1                 # beside one busy program
    python -m scripts.proof --only=orjson --show     # one package; prints, and writes nothing

It installs the releases from pip's index. A run that was ended goes on where it was, if the same
command is given with --resume.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

from scripts.busy_programs import busy_programs
from scripts.proof import page
from scripts.proof.page import key_of
from scripts.proof.releases import RELEASES
from scripts.proof.tools import FAILED, TOOLS, ask, prepare

RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    """Compare, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="beside N busy programs")
    parser.add_argument("--named", help="the name of the condition, such as 'quiet'")
    parser.add_argument("--tools", default=",".join(TOOLS), help="which tools, in which order")
    parser.add_argument("--only", help="packages, separated by commas")
    parser.add_argument("--gate-time", default="40s", help="the most time of a case for ipubench")
    parser.add_argument("--resume", action="store_true", help="keep the answers of this condition")
    parser.add_argument("--show", action="store_true", help="write no results")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    option = parser.parse_args()
    results: Dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if option.page:
        page.write(results)
        return
    only = option.only.split(",") if option.only else [one.package for one in RELEASES]
    chosen = [one for one in RELEASES if one.package in only]
    for release in chosen:
        print(f"environments of {key_of(release)}", flush=True)
        prepare(release)
    named = option.named or ("quiet" if not option.busy else f"{option.busy} busy")
    condition = results.get(named, {}) if option.resume else {}
    condition.update(cpus=len(os.sched_getaffinity(0)), gate_time=option.gate_time)
    answers: Dict[str, Dict[str, Any]] = condition.setdefault("answers", {})
    loads: List[float] = condition.setdefault("loads", [])
    results[named] = condition
    with tempfile.TemporaryDirectory(prefix="proof-") as folder, busy_programs(option.busy):
        for tool in option.tools.split(","):
            for number, release in enumerate(chosen):
                key, started = key_of(release), time.monotonic()
                if answers.get(key, {}).get(tool, {}).get("found", FAILED) != FAILED:
                    continue
                loads.append(round(os.getloadavg()[0], 2))
                words = [f"--gate-time={option.gate_time}"]
                answer = ask(tool, release, Path(folder) / tool / str(number), words)
                answers.setdefault(key, {})[tool] = answer._asdict()
                seconds = time.monotonic() - started
                print(
                    f"{tool}: {key}: {answer.found} ({answer.change:+.1%}) {seconds:.0f} s",
                    answer.why,
                )
                if not option.show:
                    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    if not option.show:
        page.write(results)


if __name__ == "__main__":
    main()
