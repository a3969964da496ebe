"""Attack the readers for a while, and print what each withstood: `make fuzz`.

    python -m tests.nightly.fuzz [--seconds=120] [--seed=N] [READER ...]

Each reader runs in a process of its own, which may take 500 MB beyond what its imports took. The
exit code is 1 where an input was found that ends badly; it is in tests/nightly/fuzz/found/.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import Optional, Sequence

from ipubench.plugins.record.text import Parser
from tests.nightly.fuzz.attack import attack
from tests.nightly.fuzz.readers import READERS


def main(words: Optional[Sequence[str]] = None) -> int:
    """Read the command line and attack; return the exit code."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="in all (120)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of chance (the time)")
    parser.add_argument("readers", nargs="*", metavar="READER", help="(all)")
    given = parser.parse_args(words)
    unknown = set(given.readers) - set(READERS)
    if unknown:
        parser.error(f"no reader {sorted(unknown)[0]!r}; there are {', '.join(READERS)}")
    names = given.readers or list(READERS)
    print(f"seed {given.seed}", flush=True)
    total, failed = 0, 0
    for name in names:
        # Fresh, so that the bound of the memory is this reader's.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            ended = pool.apply(attack, (name, given.seconds / len(names), given.seed))
        total += ended["count"]
        failed += len(ended["found"])
        print(f"{name}: {ended['count']} inputs, longest {ended['longest']:.2f} s", flush=True)
        for line in ended["found"]:
            print(f"  {line}", flush=True)
    print(f"{total} inputs, {failed} found")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
