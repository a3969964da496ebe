"""Latency under load, by LoadGen and by an independent Poisson client, on a scripted server.

    python -m scripts.compare_arrivals [--queries=1000] [--repetitions=3]

The server has one worker that takes 8 ms for each request, first come, first served (M/D/1), so how
long a request waits follows from the arrivals alone. Each line has the ratio of the two clients'
percentiles, the median of the repetitions. At 0.4 and at 0.64 of what the server can do.
"""

from __future__ import annotations

import queue
import random
import statistics
import tempfile
import threading
import time
from functools import partial
from typing import Any, Callable, Dict, List

from ipubench.fixtures.servers import arrivals
from ipubench.fixtures.servers.client import Client
from ipubench.fixtures.servers.load import SERVER, Load, percentiles
from ipubench.plugins.record.text import Parser

SERVICE_SECONDS = 0.008
RATES = (50.0, 80.0)
SHOWN = ("p50", "p90", "p99")


class Server:
    """One worker, and a queue before it."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def ask(self, done: Callable[[], None]) -> None:
        """Have a request answered by a call of ``done``."""
        self._waiting.put(done)

    def _work(self) -> None:
        while True:
            done = self._waiting.get()
            end = time.monotonic() + SERVICE_SECONDS
            time.sleep(SERVICE_SECONDS - arrivals.SPIN_SECONDS)
            while time.monotonic() < end:
                pass
            done()


class OurClient(Client):
    """The suite's client, which LoadGen drives."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.requests = list(range(10))
        self._server = server

    def make_requests(self) -> List[Any]:
        """Return numbers: the server reads nothing."""
        return self.requests

    def open(self, address: str) -> bool:
        """There is nothing to open."""
        return True

    def ask(self, request: Any) -> Any:
        """Refuse: an open loop does not wait."""
        raise NotImplementedError("an open loop does not wait for an answer")

    def ask_later(self, request: Any, done: Callable[..., None]) -> None:
        """Put the request into the server's queue."""
        self._server.ask(partial(done, request))

    def outcome(self, *found: Any) -> Any:
        """Return the request, which is its own answer."""
        return found[0]

    def check(self, answer: Any) -> None:
        """Every answer is one."""


def independent(
    ask: Callable[[Callable[[], None]], None], rate: float, queries: int, seed: int
) -> Dict[str, float]:
    """Send requests at exponential intervals; return the percentiles of their latencies.

    ``ask`` sends one and has its argument called with the answer. Latencies are seconds from when a
    request was due.
    """
    chosen, at, latencies = random.Random(seed), 0.0, []  # noqa: S311  arrivals, no secrets
    start, left = time.monotonic() + 0.1, threading.Semaphore(0)

    def done(due: float) -> None:
        latencies.append(time.monotonic() - due)
        left.release()

    for _ in range(queries):
        at += chosen.expovariate(rate)
        time.sleep(max(0.0, start + at - time.monotonic()))
        ask(partial(done, start + at))
    for _ in range(queries):
        left.acquire()
    return percentiles(latencies)


def main() -> None:
    """Measure both and print a line for each rate and percentile."""
    parser = Parser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args()
    server = Server()
    client = OurClient(server)
    for rate in RATES:
        ours, theirs = [], []
        for seed in range(1, args.repetitions + 1):
            with tempfile.TemporaryDirectory() as logs:
                load = Load(SERVER, args.queries, target_qps=rate, logs=logs, seed=seed)
                ours.append(arrivals.run(client, load).percentiles)
            theirs.append(independent(server.ask, rate, args.queries, seed))
        for name in SHOWN:
            one = 1000 * statistics.median(found[name] for found in ours)
            other = 1000 * statistics.median(found[name] for found in theirs)
            print(
                f"{rate:g} requests/s {name}: LoadGen {one:.2f} ms, independent {other:.2f} ms, "
                f"ratio {one / other:.3f}"
            )


if __name__ == "__main__":
    main()
