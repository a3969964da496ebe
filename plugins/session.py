"""All pytest hooks of a run, in their order.

A run reads its command line, chooses its cases and attaches its device. It measures, records and
judges each case. Then it stores and shows the results, and ends.

plugins/__init__.py registers this module as soon as there is something to measure.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Generator, List, Optional

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.untrusted import printable
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine.garbage import exit_without_garbage_collection
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.fixtures.pytest_fixtures import shared_of
from ipubench.plugins.command_line import refusals
from ipubench.plugins.command_line.arguments import names_yaml
from ipubench.plugins.command_line.role import Role, distributes, role_of
from ipubench.plugins.measure import (
    apart,
    base,
    executables,
    found,
    inspection,
    instance,
    marked,
    memory,
)
from ipubench.plugins.record.text import GateLimits
from ipubench.plugins.run import gate_time, interruption, journal, junit, masked, progress
from ipubench.plugins.run.exit_code import exit_code
from ipubench.plugins.run.later import Later
from ipubench.plugins.selection import deselect, expand, functions, named, order
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run, run_key, run_of

# What few runs use, and no process of a pair.
if TYPE_CHECKING:
    from ipubench.plugins.baseline import history
    from ipubench.plugins.benchmarks_yml import named_files
    from ipubench.plugins.compare import (
        baseline,
        both_sides,
        counting,
        explain,
        judge,
        other_side,
        policy,
    )
    from ipubench.plugins.fleet import controller, worker
    from ipubench.plugins.listing import describe, dry_run
    from ipubench.plugins.measure import children
    from ipubench.plugins.report import of_run, terminal
    from ipubench.plugins.selection import datasets
else:
    history = Later("baseline.history")
    named_files = Later("benchmarks_yml.named_files")
    baseline = Later("compare.baseline")
    both_sides = Later("compare.both_sides")
    counting = Later("compare.counting")
    explain = Later("compare.explain")
    judge = Later("compare.judge")
    other_side = Later("compare.other_side")
    policy = Later("compare.policy")
    controller = Later("fleet.controller")
    worker = Later("fleet.worker")
    describe = Later("listing.describe")
    dry_run = Later("listing.dry_run")
    children = Later("measure.children")
    of_run = Later("report.of_run")
    terminal = Later("report.terminal")
    datasets = Later("selection.datasets")

# ------------------------------------------------------------------ the command line


def begin(config: pytest.Config) -> None:
    """Read and check everything that the command line names, before anything is measured.

    plugins/__init__.py calls this when the hooks below are registered. The hooks of a controller of
    workers have to run before them, so it is registered here.
    """
    exit_without_garbage_collection()
    masked.remember_command_line(config)
    role = role_of(config)
    joined = instance.join_instances(config)
    if role in (Role.CONTROLLER, Role.LISTING) and distributes(config):
        controller.become_controller(config, role)
    if role is Role.WORKER:
        worker.become_worker(config)
    refusals.refuse_contradictions(config, role)
    run = Run(config, expand.selection_of(config), role, instance=joined)
    config.stash[run_key] = run
    option = options_of(config)
    run.keep_results_in(Path(option.results_dir))
    shared_of(config).energy = option.energy or GateLimits.of(option.gate).energy is not None
    instance.direct_instances(run)
    executables.store_executables(run)
    run.exported_flags = os.environ.get(TF_FLAGS)
    if options_of(config).report is not None or config.option.benchmark_json is not None:
        of_run.check_places(run)
    if run.compares:
        explain.refuse_without_gate(run)
        other_side.prepare_other_side(run)
        policy.read_policy(run)
        baseline.read_baseline(run)
    if names_yaml(config):
        named_files.read_files(run)
    if run.compares:
        counting.prepare(run)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Make the progress line, handle signals and watch for results."""
    run = run_of(session.config)
    run.progress = progress.Progress(session.config, run.role)
    run.interruption = interruption.handle_signals(session, run.role)
    if run.interruption is not None:
        session.config.pluginmanager.register(run.interruption)
    found.watch_results(run)


# ------------------------------------------------------------------ choosing the cases


# A wrapper also runs before a controller of workers, which collects itself.
@pytest.hookimpl(hookwrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, None, None]:
    """Let node ids of cases leave out the overrides of ``--set``."""
    named.collect_functions(session, run_of(session.config).selection)
    yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a case of each declared configuration, and of each entry of a benchmarks.yml."""
    selection = run_of(metafunc.config).selection
    expand.parametrize_cases(metafunc, selection)
    if selection.named_files:
        named_files.parametrize_entries(metafunc, selection)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Make a case of a test that measures."""
    run = run_of(item.config)
    if run.baseline is not None:
        baseline.restore_case(run, item)
    functions.make_case_of(item, run.selection)


# Runs within --lf's wrapper, which removes tests that have passed before from the report.
@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, None]:
    """Note all cases of a file, also those that the command line does not name."""
    outcome = yield
    functions.note_collected(collector, outcome.get_result(), run_of(collector.config).selection)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: List[pytest.Item]
) -> None:
    """Keep the cases that the command line names, and add the names by which ``-k`` finds one."""
    named.keep_named(session, items, run_of(config).selection)
    deselect.add_names(items, run_of(config).selection)


# Runs after -k and -m.
@pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
def pytest_collection_modifyitems_last(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Leave out what cannot run here, sort, and open the journal."""
    run = run_of(config)
    if run.selection.named_files:
        named_files.leave_out_entries(items, run.selection)
    deselect.leave_out_unfit(config, items, run.selection)
    functions.refuse_idle_options(config, items, run.selection)
    if run.role is Role.MAIN:
        functions.refuse_disabled(config, items)
    order.sort_cases(config, items)
    if devices.of(run.selection.device).poplar:
        controller.leave_out_larger(run, items)
    journal.start_run(run, items)


# Runs before pytest's terminal, registered later, shows the header.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Check what the selected cases need, and divide the time among them."""
    config, items, run = session.config, session.items, run_of(session.config)
    run.flags = apart.flags_of_most(items)
    if run.baseline is not None:
        baseline.match_root_folder(run)
    if any(item.get_closest_marker("gate") for item in items):
        policy.check_markers(run, items)
    journal.note_selection(run, items)
    if run.compares:
        both_sides.compare_cases(run, items)
    asks = any(functions.asks_for(item, "data") for item in items)
    if asks and run.role is not Role.LISTING:
        datasets.find_data(config, items)
    run.progress.expect_of(items)
    run.gate_time = gate_time.of_run(config, items)
    if run.selection.named_files:
        named_files.check_commands(run, items)
    inspection.choose_folders(run, items)


def pytest_report_collectionfinish(config: pytest.Config, items: List[pytest.Item]) -> List[str]:
    """Return the header's lines: which cases are left out, and what the run will do."""
    run = run_of(config)
    lines = [
        *(named_files.unused_keys(items) if run.selection.named_files else []),
        *deselect.what_was_left_out(config, items, run.selection),
        *(datasets.which_data(config) if shared_of(config).found else []),
        *journal.where_results_go(run),
        *(baseline.gate_forecast(run, items) if run.compares else []),
        *(other_side.comparison_lines(run, items) if run.compares else []),
        *apart.why_cases_are_apart(items),
    ]
    return list(map(printable, lines))


def pytest_runtestloop(session: pytest.Session) -> Optional[bool]:
    """With ``--describe`` or ``--dry-run`` list the cases and run none; else count and compare.

    A process that counts runs each test in children.
    """
    run, option = run_of(session.config), session.config.option
    lists = options_of(session.config)
    listed = dry_run.list_commands(session) if lists.dry_run else None
    if lists.describe and not listed:
        listed = describe.list_options(session)
    # A file that cannot be collected ends the run, in pytest's implementation.
    run.begun = not session.testsfailed or option.continue_on_collection_errors
    if listed or not run.begun:
        return listed
    if options_of(session.config).counting is not None:
        return children.count_in_children(run, session.items)
    if run.compares:
        counting.count_cases(run, session.items)
        other_side.compare_first(run, session.items)
    return None


# ------------------------------------------------------------------ attaching the device


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(
    fixturedef: Any, request: pytest.FixtureRequest
) -> Generator[None, None, None]:
    """Count the time of our fixtures; a test's time limit does not include some of them."""
    name, run = fixturedef.argname, run_of(request.config)
    with run.bounds.lifted_for(name), run.spent.of_fixture(name):
        yield


# ------------------------------------------------------------------ measuring, recording, judging


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, None, None]:
    """Begin a case in the journal and on the screen; count its time."""
    run = run_of(item.config)
    with run.spent.of_test(case_of(item) is not None):
        run.progress.begin_test(item)
        journal.begin_case(run, item)
        run.bounds.begin(item)
        yield
    if case_of(item) is not None:
        run.gate_time.end()
    executables.forget_executables(run)


# Runs before a marker skips the test.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start with no results for this test."""
    base.begin_test(item)


def pytest_runtest_call(item: pytest.Item) -> None:
    """Measure the case in a separate process if it cannot share this one."""
    apart.measure_apart(item)


# Wraps plugins for asynchronous tests, which replace the test's function.
@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
    """Measure: the test calls the fixture ``meter`` or ``benchmark``, or it is marked."""
    run = run_of(pyfuncitem.config)
    device = run.selection.device
    with marked.measured_function(pyfuncitem), memory.bounded_memory(pyfuncitem, device) as bounded:
        with run.spent.during("build"):
            outcome = yield
        bounded(outcome)


# Runs after pytest has called the test.
@pytest.hookimpl(trylast=True, specname="pytest_runtest_call")
def pytest_runtest_call_last(item: pytest.Item) -> None:
    """Record and judge the case."""
    run = run_of(item.config)
    found.record_results(item)
    measured = found.take_measured(item)
    if run.compares:
        judge.judge_case(run, item, measured)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Profile a regressed case while its device is attached; count the time of the teardown."""
    run = run_of(item.config)
    with run.spent.during("close"):
        if run.compares:
            explain.explain_regression(run, item)
        run.item = None  # a result of the teardown comes too late for the verdict
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Record how the case ended: in JUnit XML, in the journal and on the screen."""
    run = run_of(item.config)
    found.record_results(item)
    if call.when == "teardown":
        found.complete_records(run, item)
    if run.interruption is not None:
        run.interruption.raise_again()
    junit.add_properties(run, item, call)
    outcome = yield
    report = outcome.get_result()
    masked.mask_report_of(item, report)
    journal.end_case(run, item, call, report, base.state_of(item).names)
    if case_of(item) is not None:
        run.progress.reported(report, run.results, once=progress.once_of(run.spent))


# Runs before pytest's terminal and JUnit XML, registered later.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: Any) -> None:
    """Mask additions of other plugins, such as the reason of an expected failure."""
    masked.mask_report(report)


# Runs first, as above.
@pytest.hookimpl(tryfirst=True)
def pytest_collectreport(report: Any) -> None:
    """Mask the errors of files that cannot be collected."""
    masked.mask_report(report)


@pytest.hookimpl(hookwrapper=True)
def pytest_report_teststatus(report: Any, config: pytest.Config) -> Generator[None, Any, None]:
    """Show no letter for a case: it has a line."""
    outcome = yield
    outcome.force_result(run_of(config).progress.without_letter(report, outcome.get_result()))


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Optional[bool]:
    """Note pytest-timeout's timer, which does not include fresh processes."""
    return run_of(item.config).bounds.set_timer(item, settings)


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Forget the timer."""
    run_of(item.config).bounds.cancel_timer()


# ------------------------------------------------------------------ storing, showing, ending


# Wraps what other plugins do at the end.
@pytest.hookimpl(hookwrapper=True, tryfirst=True, specname="pytest_sessionfinish")
def pytest_sessionfinish_first(session: pytest.Session) -> Generator[None, Any, None]:
    """Complete the session, whatever signal arrives."""
    run = run_of(session.config)
    if run.interruption is not None:
        run.interruption.finish()
    yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Complete the journal and the lines below the table."""
    run = run_of(session.config)
    run.progress.close()
    ended = _end(session)
    if not run.journal.stores:
        return
    interruption.note_early_end(run, ended)
    journal.end_selection(run)
    if run.selection.named_files or options_of(run.config).report is not None:
        named_files.write_columns(run)
    if run.compares:
        both_sides.add_open_verdicts(run)
    found.name_late(run)
    if run.compares:
        other_side.add_closing_lines(run)
        policy.name_unused_patterns(run)


# Runs after pytest has closed all fixtures.
@pytest.hookimpl(trylast=True, specname="pytest_sessionfinish")
def pytest_sessionfinish_last(session: pytest.Session) -> None:
    """Store the baseline, the history and the report."""
    run = run_of(session.config)
    if run.journal.stores:
        if run.compares or run.selection.invalid:
            baseline.conclude(run, _end(session))
        if options_of(run.config).history:
            history.keep_run(run, _end(session))
        of_run.write_reports(run, _end(session))
    _end(session)


# Runs after a conftest.py has added its data.
@pytest.hookimpl(trylast=True, optionalhook=True)
def pytest_benchmark_update_json(output_json: Dict[str, Any]) -> None:
    """Mask pytest-benchmark's own file."""
    masked.mask_json(output_json)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show the table, the verdicts and the closing lines."""
    run = run_of(config)
    found.hide_table(config)
    if run.journal.stores:
        terminal.write_summary(terminalreporter, run)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restore the previous handlers of signals; set the exit code if one ended the run."""
    run = config.stash.get(run_key, None)  # none if the command line was refused
    if run is not None and run.interruption is not None:
        run.signalled = run.interruption.leave()
        _end(run.interruption.session)


def _end(session: pytest.Session) -> int:
    """Set the session's exit code to that of the run so far; return it."""
    session.exitstatus = exit_code(run_of(session.config), session.exitstatus)
    return session.exitstatus
