"""Stand-ins for Open MPI's mpirun and for poprun, with the features that the project uses.

``mpirun.py -n N PROGRAM ...`` starts N processes, each with its number in OMPI_COMM_WORLD_RANK.
With poprun's options, the number and the job are in DOUBLE_POPDIST, which a test's module
``popdist`` reads. If one process fails, the others are terminated, and a line names its number and
the signal.

Both behave as when root starts Open MPI, whichever user runs them, because poprun starts it too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import List

# Without both, root is refused (open-mpi/ompi, orte/orted/orted_submit.c).
AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main() -> int:
    """Run the program N times; return 0 or the failure of the first one that failed."""
    if any(os.environ.get(name) != "1" for name in AS_ROOT):
        print("mpirun has detected an attempt to run as root.", file=sys.stderr)
        return 1
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-n", "--num-instances", type=int, dest="instances", required=True)
    parser.add_argument("--num-replicas", type=int, dest="replicas")
    parser.add_argument("--ipus-per-replica", type=int)
    parser.add_argument("--numa-aware", choices=("yes", "no"))
    parser.add_argument("--mpi-local-args", default="")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    job = vars(parser.parse_args())
    program, poprun = job.pop("program"), job.pop("numa_aware") is not None
    job.pop("mpi_local_args")  # variables for other hosts; those of this host have all
    sys.path.insert(0, ROOT)
    from ipubench.fixtures.instances import processes

    start = processes.started

    def started(command: List[str], rank: int) -> int:
        os.environ["OMPI_COMM_WORLD_RANK"] = str(rank)
        if poprun:
            os.environ["DOUBLE_POPDIST"] = json.dumps({**job, "index": rank})
        return start(command, rank)

    processes.started = started
    return processes.main(["-n", str(job["instances"]), *program])


if __name__ == "__main__":
    sys.exit(main())
