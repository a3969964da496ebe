"""The course of a run: every hook of pytest that the plugin has, in the order in which they happen.

A run reads its command line, chooses its cases and attaches its device; it measures, records and
judges each case; then it shows and stores what it found, and ends.

plugins/__init__.py registers this module as soon as there is something to measure.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Dict, Generator, List, Optional

import pytest

from ipubench.fixtures.machine.garbage import end_without_collecting
from ipubench.plugins.baseline import history
from ipubench.plugins.benchmarks_yml import plugin as benchmarks_yml
from ipubench.plugins.benchmarks_yml.cases import SpecFile
from ipubench.plugins.command_line import refusals
from ipubench.plugins.compare import (
    against_plugin,
    baseline_plugin,
    counting,
    explain,
    fresh_processes,
    judge_plugin,
    policy,
)
from ipubench.plugins.fleet import controller, worker
from ipubench.plugins.listing import describe, dry_run
from ipubench.plugins.measure import apart, found, instance, looking_inside, marked, memory
from ipubench.plugins.processes import fresh
from ipubench.plugins.report import plugin as reports
from ipubench.plugins.report import terminal
from ipubench.plugins.run import (
    bounds,
    interruption,
    journal,
    masked,
    progress,
    time_spent,
    within,
)
from ipubench.plugins.run.exit_code import exit_code
from ipubench.plugins.selection import datasets, deselect, expand, functions, order

# ------------------------------------------------------------------ what is asked for


def begin(config: pytest.Config) -> None:
    """Read and check all that the command line names, before anything is measured.

    plugins/__init__.py calls this once the hooks below are registered: those of a controller of
    workers, which is registered here, come before them.
    """
    end_without_collecting()
    masked.remember_command_line(config)
    # What this process is: an instance, a fresh process, a worker, a controller, or the run itself.
    instance.join_instances(config)
    fresh.follow_parent(config)
    controller.become_controller(config)
    worker.become_worker(config)
    bounds.note_parent(config)
    time_spent.start_clock(config)
    apart.note_exported_flags(config)
    # What is asked of it.
    refusals.refuse_contradictions(config)
    within.start_limit(config)
    reports.check_places(config)
    explain.refuse_without_gate(config)
    against_plugin.prepare_other_side(config)
    baseline_plugin.read_baseline(config)
    policy.read_policy(config)
    expand.parse_settings(config)
    benchmarks_yml.read_files(config)
    fresh_processes.reserve_gate_time(config)
    counting.prepare(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Make the progress line; handle SIGTERM and watch for results from now on."""
    progress.make_progress(session)
    found.watch_results(session)
    interruption.handle_sigterm(session)


# ------------------------------------------------------------------ choose the cases


def pytest_collect_file(file_path: Path, parent: Any) -> Optional[SpecFile]:
    """Collect a benchmarks.yml."""
    return benchmarks_yml.collect_file(file_path, parent)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a case of each declared configuration, and of each entry of a benchmarks.yml."""
    expand.parametrize_cases(metafunc)
    benchmarks_yml.parametrize_entries(metafunc)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Make a case of a test that measures."""
    baseline_plugin.restore_case(item)
    functions.make_case_of(item)


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, None]:
    """Note all cases of a file, also those that the command line does not name."""
    outcome = yield
    functions.note_collected(collector, outcome.get_result())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Before ``-k``: add the names by which it finds a case."""
    deselect.add_names(config, items)


@pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
def pytest_collection_modifyitems_last(config: pytest.Config, items: List[pytest.Item]) -> None:
    """After ``-k`` and ``-m``: leave out what cannot run here, sort, and start the run."""
    benchmarks_yml.leave_out_entries(config, items)
    deselect.leave_out_unfit(config, items)
    functions.refuse_idle_options(config, items)
    order.sort_cases(config, items)
    controller.leave_out_larger(config, items)
    journal.start_run(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Check what the selected cases need, before pytest reports what it has collected."""
    apart.choose_flags(session)
    policy.check_markers(session)
    journal.note_selection(session)
    datasets.find_data(session)


@pytest.hookimpl(trylast=True, specname="pytest_collection_finish")
def pytest_collection_finish_last(session: pytest.Session) -> None:
    """Share the time among the cases; check the commands of a benchmarks.yml."""
    within.count_cases(session)
    progress.expect_cases(session)
    fresh_processes.share_gate_time(session)
    benchmarks_yml.check_commands(session)
    looking_inside.choose_folders(session)


def pytest_report_collectionfinish(config: pytest.Config, items: List[pytest.Item]) -> List[str]:
    """Return lines for the header: what was left out, and what is about to happen."""
    return [
        *benchmarks_yml.unused_keys(config, items),
        *deselect.what_was_left_out(config, items),
        *datasets.which_data(config),
        *journal.where_results_go(config),
        *baseline_plugin.what_the_gate_costs(config, items),
        *against_plugin.what_is_compared(config, items),
        *apart.why_cases_are_apart(config, items),
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Optional[bool]:
    """With ``--describe`` or ``--dry-run`` list the cases, and run none; else count them first."""
    listed = dry_run.list_commands(session) or describe.list_options(session)
    if not listed:
        counting.count_cases(session)
    return listed


# ------------------------------------------------------------------ measure, record and judge each


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, None, None]:
    """Begin a case in the journal and on the screen; count its time."""
    with contextlib.ExitStack() as counting:
        counting.enter_context(within.time_of_case(item))
        counting.enter_context(fresh_processes.gate_time_of_case(item))
        counting.enter_context(time_spent.clock_of_case(item))
        progress.begin_line(item)
        journal.begin_case(item)
        bounds.lift_bounds(item)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give the case its budget; results are this test's from now on."""
    found.begin_test(item)
    within.give_budget(item)
    fresh_processes.forget_processes(item)


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(
    fixturedef: Any, request: pytest.FixtureRequest
) -> Generator[None, None, None]:
    """Attach the device and make the data: the fixtures of fixtures/pytest_fixtures.py."""
    name, config = fixturedef.argname, request.config
    with bounds.waiting_for_device(name, config), time_spent.clock_of_fixture(name, config):
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Measure in a process of its own what has to be."""
    apart.measure_apart(item)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
    """Measure: the test calls the fixture ``meter`` (plugins/measure) or is marked to be timed."""
    with marked.measured_function(pyfuncitem), memory.bounded_memory(pyfuncitem) as bounded:
        with time_spent.clock_of_build(pyfuncitem):
            outcome = yield
        bounded(outcome)


@pytest.hookimpl(trylast=True, specname="pytest_runtest_call")
def pytest_runtest_call_last(item: pytest.Item) -> None:
    """Record and judge what the case has measured."""
    found.record_results(item)
    explain.keep_release(item)
    judge_plugin.judge_case(item)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Profile a case that has regressed while its device is still attached; count the teardown."""
    with time_spent.clock_of_teardown(item):
        explain.explain_regression(item)
        found.end_test(item)
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Record how the case ended: in JUnit XML, in the journal and on the screen."""
    found.record_results(item)
    if call.when == "teardown":
        found.complete_records(item)
    interruption.end_case_that_caught(item)
    reports.add_junit_properties(item, call)
    outcome = yield
    report = outcome.get_result()
    masked.mask_report_of(item, report)
    journal.end_case(item, call, report)
    progress.end_line(item, report)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: Any) -> None:
    """Mask what other plugins have added, such as the reason of an expected failure."""
    masked.mask_report(report)


@pytest.hookimpl(tryfirst=True)
def pytest_collectreport(report: Any) -> None:
    """Mask the errors of files that cannot be collected."""
    masked.mask_report(report)


@pytest.hookimpl(hookwrapper=True)
def pytest_report_teststatus(report: Any, config: pytest.Config) -> Generator[None, Any, None]:
    """Show no letter for a case, which has a line of its own."""
    outcome = yield
    outcome.force_result(progress.without_letter(report, config, outcome.get_result()))


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Optional[bool]:
    """Note pytest-timeout's timer, which does not count fresh processes."""
    return bounds.set_timer(item, settings)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Forget the timer."""
    bounds.cancel_timer(item)


# ------------------------------------------------------------------ show, store and end


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Complete the journal and the lines below the table."""
    progress.show_words(session)
    interruption.note_early_end(session)
    session.exitstatus = journal.end_selection(session)
    benchmarks_yml.write_columns(session)
    within.name_skipped(session)
    found.name_late(session.config)
    against_plugin.add_closing_lines(session)
    policy.name_unused_patterns(session)


@pytest.hookimpl(trylast=True, specname="pytest_sessionfinish")
def pytest_sessionfinish_last(session: pytest.Session) -> None:
    """Store the baseline, the history and the report, now that all fixtures are closed."""
    for store in (baseline_plugin.conclude_session, history.keep_run, reports.write_reports):
        session.exitstatus = exit_code(session.exitstatus, store(session))


@pytest.hookimpl(trylast=True, optionalhook=True)
def pytest_benchmark_update_json(output_json: Dict[str, Any]) -> None:
    """Mask pytest-benchmark's own file."""
    masked.mask_json(output_json)


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show the table, the verdicts and the closing lines."""
    terminal.write_summary(terminalreporter, config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restore the handler of SIGTERM."""
    interruption.restore_sigterm(config)
