"""Stand-ins for Open MPI's mpirun and for poprun, with what the project relies on.

``mpirun.py -n N PROGRAM ...`` starts N processes that find their number in OMPI_COMM_WORLD_RANK.
With the options of poprun they find it, and the job, in DOUBLE_POPDIST, which a test's own module
``popdist`` reads. When one fails, the others are asked to end, and a line names the rank, its
process and the signal.

Both begin as Open MPI does that root has started, whoever starts them here: poprun starts it too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys

# Without both root is refused (open-mpi/ompi, orte/orted/orted_submit.c).
AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def main() -> int:
    """Run the program N times and return 1 where one of them has failed."""
    if any(os.environ.get(name) != "1" for name in AS_ROOT):
        print("mpirun has detected an attempt to run as root.", file=sys.stderr)
        return 1
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-n", "--num-instances", type=int, dest="instances", required=True)
    parser.add_argument("--num-replicas", type=int, dest="replicas")
    parser.add_argument("--ipus-per-replica", type=int)
    parser.add_argument("--numa-aware", choices=("yes", "no"))
    parser.add_argument("program", nargs=argparse.REMAINDER)
    job = vars(parser.parse_args())
    program, poprun = job.pop("program"), job.pop("numa_aware") is not None
    children = {}
    for rank in range(job["instances"]):
        environment = {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank)}
        if poprun:
            environment["DOUBLE_POPDIST"] = json.dumps({**job, "index": rank})
        child = subprocess.Popen(program, env=environment)
        children[child.pid] = (rank, child)
    print("started", *children, flush=True)
    code = 0
    while children:
        pid, status = os.wait()
        if pid not in children:
            continue
        rank, child = children.pop(pid)
        child.returncode = 0  # Its end was read here.
        if status and not code:
            code = 1
            if os.WIFSIGNALED(status):
                number = os.WTERMSIG(status)
                print(
                    f"mpirun noticed that process rank {rank} with PID {pid} on node here exited "
                    f"on signal {number} (Killed).",
                    flush=True,
                )
            for other in children:  # Popen.terminate could read the end of another one.
                os.kill(other, signal.SIGTERM)
    return code


if __name__ == "__main__":
    sys.exit(main())
