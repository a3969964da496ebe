"""The only module that uses pytest-xdist beyond its hooks (3.6 to 3.8).

pytest-xdist always starts a lost worker again, or ends the run; here the controller decides.
pytest-xdist's workers wait for the next test before they begin one; ours get one case at a time.
"""

from __future__ import annotations

import queue
from typing import Any, Callable, Dict, Optional, Tuple, Type

import pytest

from ipubench.plugins.fleet.distribution import Distribution
from ipubench.plugins.fleet.hosts import FleetError

#: The time for a worker's first message; the first imports on a host may be slow.
START_SECONDS = 300.0
#: ``when`` of the report that pytest-xdist makes for a crashed worker.
CRASHED: Any = "???"


class XdistSession:
    """pytest-xdist's session of the controller."""

    def __init__(
        self, config: pytest.Config, hello: Callable[[Any, Any], None], distribution: Distribution
    ) -> None:
        """Handle workers that start (``hello`` gets their facts) and workers that end."""
        self._config, self._distribution = config, distribution
        self._session: Any = config.pluginmanager.getplugin("dsession")
        self._session.worker_hello = hello
        self._session.worker_errordown = self._errordown
        self._session.worker_workerfinished = self._finished
        self._session.worker_internal_error = self._broken

    def enough_failed(self, error: BaseException) -> bool:
        """Return whether ``error`` ends the run because of --maxfail."""
        most = int(self._session.maxfail or 0)
        return isinstance(error, KeyboardInterrupt) and 0 < most <= self._session.countfailures

    def copy_nothing(self) -> None:
        """Copy no files to hosts, and give their workers the command line as it is.

        pytest-xdist would copy pytest into chdir=, and expects that all paths were copied.
        """
        from xdist import workermanage

        self._session.nodemanager.roots = []
        workermanage.make_reltoroot = lambda roots, args: args

    def listen(self, node: Any) -> Any:
        """Return a channel to a starting worker; its first message is its facts."""
        channel = node.gateway.newchannel()
        put = self._session.queue.put
        channel.setcallback(lambda facts: put(("hello", {"node": node, "facts": facts})))
        return channel

    def wait_for(self, count: int) -> Dict[Any, Any]:
        """Return the facts of ``count`` workers. Raises FleetError if one ends before."""
        found: Dict[Any, Any] = {}
        events = []
        while len(found) < count:
            try:
                events.append(self._session.queue.get(timeout=START_SECONDS))
            except queue.Empty:
                raise FleetError(f"hosts have not started within {START_SECONDS:.0f} s") from None
            name, values = events[-1]
            if name == "hello":
                found[values["node"]] = values["facts"]
            elif name == "collectionfinish" and values["node"] not in found:
                worker = values["node"].gateway.spec.worker
                raise FleetError(f"{worker}: ipubench does not run there: chdir= names a checkout")
            elif name in ("errordown", "workerfinished", "internal_error"):
                error = values.get("error") or values.get("formatted_error") or "its session ended"
                raise FleetError(f"{values['node'].gateway.spec.worker}: {why_lost(error)}")
        for event in events:
            self._session.queue.put(event)
        return found

    def _broken(self, node: Any, formatted_error: str) -> None:
        """End the run after an internal error of pytest, or of a plugin, in a worker."""
        message = f"{node.gateway.spec.worker}: {formatted_error}"
        pytest.exit(message, returncode=pytest.ExitCode.INTERNAL_ERROR)

    def _errordown(self, node: Any, error: Any) -> None:
        self._config.hook.pytest_testnodedown(node=node, error=error)
        self._end(node, why_lost(error), None)

    def _finished(self, node: Any) -> None:
        self._config.hook.pytest_testnodedown(node=node, error=None)
        output = node.workeroutput
        ours = self._session
        ours.shouldstop = ours.shouldstop or output["shouldfail"] or output["shouldstop"]
        self._end(node, "its session has ended", output)

    def _end(self, node: Any, why: str, output: Optional[Dict[str, Any]]) -> None:
        ours = self._session
        ours._active_nodes.remove(node)
        if ours.shuttingdown or ours.shouldstop:
            return
        if not self._distribution.lost(node, why, output):
            return
        spec = node.gateway.spec
        node.gateway.exit()
        spec.id = None
        ours.nodemanager.group.allocate_id(spec)
        try:
            ours._active_nodes.add(ours.nodemanager.setup_node(spec, ours.queue.put))
        except no_answer() as error:
            self._distribution.failed_to_start(node, str(error) or type(error).__name__)


def no_answer() -> Tuple[Type[Exception], ...]:
    """Return what execnet raises if no Python starts on a host, or not in its folder."""
    from execnet import HostNotFound, RemoteError

    return (OSError, EOFError, AssertionError, HostNotFound, RemoteError)


def why_lost(error: Any) -> str:
    """Return why a worker is gone: the last line of a traceback."""
    lines = str(error).strip().splitlines()
    if not lines or lines[-1] == "Not properly terminated":
        return "the connection was lost, or its process was killed"
    return lines[-1].rpartition("UsageError: ")[2]


def run_items(session: pytest.Session, keep_fixtures: bool) -> None:
    """In a worker, run the items that the controller sends.

    pytest-xdist would wait for the next item before it runs one, to find which fixtures to keep.
    With ``keep_fixtures`` the fixtures of a module or class are torn down when an item of another
    one arrives; without it, all fixtures are torn down after each item.
    """
    plugins = session.config.pluginmanager.get_plugins()
    worker: Any = next(one for one in plugins if type(one).__name__ == "WorkerInteractor")
    worker.channel.setcallback(worker.handle_command, endmarker=("shutdown", {}))
    previous: Optional[pytest.Item] = None
    while not (session.shouldfail or session.shouldstop):
        index = worker.torun.get()
        if not isinstance(index, int):
            break
        worker.item_index, item = index, session.items[index]
        if keep_fixtures and previous is not None:
            _tear_down(previous, item)
        following: Any = item.parent if keep_fixtures else None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        worker.sendevent("runtest_protocol_complete", item_index=index, duration=0.0)
        previous = item


def _tear_down(previous: pytest.Item, item: pytest.Item) -> None:
    """Tear down the fixtures that an item does not need; the previous item reports errors."""
    state: Any = item.session
    call = pytest.CallInfo.from_call(lambda: state._setupstate.teardown_exact(item), "teardown")
    if call.excinfo is not None:
        hook = item.config.hook
        report = hook.pytest_runtest_makereport(item=previous, call=call)
        hook.pytest_runtest_logreport(report=report)
