"""The notes below the table of a run: what a reader must know of its figures."""

from __future__ import annotations

import math
from itertools import compress
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Sequence, Tuple

from msgspec.structs import replace

from ipubench.fixtures.case.errors import counted, some_of
from ipubench.fixtures.runtimes.step import STAND_IN
from ipubench.plugins.record.record import (
    ITSELF,
    ONE_BATCH,
    facts_in,
    in_changing_states,
    items_per_batch,
    mean_lost,
    number_of,
    rounds_of,
    was_disturbed,
)
from ipubench.plugins.record.structs import Record
from ipubench.plugins.record.text import percent, short_number
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.run_results import RunResults

LARGEST_PRECISE_SPREAD = 0.05
#: If a batch within a round takes less than this share of a single call, the call dominates.
LEAST_OF_A_CALL = 0.5
MOST_LINES = 6  # of one kind of note


def notes_of(
    run: RunResults, rows: Sequence[CaseRow], names: Mapping[str, str], quiet: bool
) -> List[str]:
    """Return the notes on measured cases, which are called ``names``.

    ``quiet``: leave out how the machine has affected them.
    """
    rounds = [rounds_of(row.result) for row in rows]
    records = [replace(row.record, name=names[row.id]) for row in rows]
    lines = [
        f"{record.name}: implausible, see its failure" for record in records if record.implausible
    ]
    lines += _stand_ins(records) + _fewer_instances(records) + _input_limits(records)
    lines += _saved_seconds(records)
    lines += _diverged(records)
    if not quiet:
        # Of cases that were compared in pairs, the records are those of one short pair.
        alone = [row.nodeid not in run.pairs for row in rows]
        lines += _imprecise(list(compress(records, alone)), list(compress(rounds, alone)))
        lines += _disturbed(list(compress(records, alone)))
    lines += _shortened(records) + _replaced(records)
    lines += _once(records) + _single_calls(records) + _without_energy(records)
    if run.resumed:
        cases = counted(len(run.resumed), "case was", "cases were")
        lines.append(f"{cases} measured before this run was resumed")
    return lines


def _stand_ins(records: List[Record]) -> List[str]:
    """Return a note on cases that measured a service of ours instead of TensorFlow Serving."""
    found = [record for record in records if record.effective.get("engine") == STAND_IN]
    if not found:
        return []
    return [
        f"{_which(found)}: stand-in: there is no tensorflow_model_server here, so this is the rate "
        "of a Python service of this project; --set=serving_bin_path=PATH names the real server"
    ]


def _once(records: List[Record]) -> List[str]:
    """Return a note on cases that their test measured only once."""
    found = [
        record
        for record in records
        if record.effective.get("measured_by") == ITSELF and record.rounds.count == 1
    ]
    return [f"{_which(found)}: measured once, so nothing shows how noisy that is"] if found else []


def _without_energy(records: List[Record]) -> List[str]:
    """Return a note for each reason why cases have no energy."""
    found: Dict[str, List[Record]] = {}
    for record in records:
        if record.energy is not None and record.energy.unknown:
            found.setdefault(record.energy.unknown, []).append(record)
    return [f"{_which(some)}: no energy: {why}" for why, some in found.items()]


def _single_calls(records: List[Record]) -> List[str]:
    """Return a note on cases whose latency is mostly overhead of the call."""
    found, shares = [], []
    for record in records:
        items, latency = items_per_batch(record), record.latency
        if latency.source == ONE_BATCH and latency.p50_ms > 0:
            share = 1000 * items / record.throughput.median / latency.p50_ms
            if share < LEAST_OF_A_CALL:
                found.append(record)
                shares.append(share)
    what = (
        "p50 and p99 are of calls of one batch each; in a round, when one call runs many, a batch"
    )
    return [f"{_which(found)}: {what} takes {_span(shares)} of p50"] if found else []


def _replaced(records: List[Record]) -> List[str]:
    """Return a note on images that could not be read."""
    lists = [one.data.get("corrupt") for one in records]
    found = [str(path) for one in lists if isinstance(one, list) for path in one]
    corrupt = list(dict.fromkeys(found))
    if not corrupt:
        return []
    images = counted(len(corrupt), "image")
    were = "was" if len(corrupt) == 1 else "were"
    names = some_of([Path(path).name for path in corrupt])
    return [f"{images} could not be read and {were} replaced: {names}"]


def _fewer_instances(records: List[Record]) -> List[str]:
    """Return notes on cases that ran fewer processes than configured."""
    found: Dict[Tuple[float, float], List[Record]] = {}
    for record in records:
        facts = facts_in(record.effective.get("instances"))
        asked, ran = number_of(facts, "asked"), number_of(facts, "ran")
        if asked is not None and ran is not None and ran < asked:
            found.setdefault((asked, ran), []).append(record)
    return [
        f"{_which(some)}: {ran} of {asked} instances ran, one per core that this run may use"
        for (asked, ran), some in found.items()
    ]


def _diverged(records: List[Record]) -> List[str]:
    """Return notes on trainings that diverged, with the option that sets the rate."""
    lines = []
    for record in records:
        if record.counters.get("loss", 0.0) is None:
            application = "lr_schedule_params" in record.config
            rate = "lr_schedule_params=JSON" if application else "abs_learning_rate=RATE"
            lines.append(
                f"{record.name}: the loss was not finite at the end: training diverged; "
                f"--set={rate} lowers the rate"
            )
    return lines


def _input_limits(records: List[Record]) -> List[str]:
    """Return notes on cases that read from disk: the rates of loader and model alone."""
    found = [(record.name, record.input) for record in records if record.input is not None]
    lines = [
        f"{name}: loader {short_number(facts.loader)}, model {short_number(facts.model)} "
        f"{facts.unit} alone: the {facts.limit} limits"
        for name, facts in found[:MOST_LINES]
    ]
    if len(found) > MOST_LINES:
        limited = sum(facts.limit == "loader" for _, facts in found)
        lines.append(
            f"{len(found) - MOST_LINES} more read from disk; of all {len(found)} the loader limits "
            f"{limited}, the model {len(found) - limited}"
        )
    return lines


def _saved_seconds(records: List[Record]) -> List[str]:
    saved = [one.compile_saved_seconds or 0.0 for one in records if one.compile == "cached"]
    if not saved:
        return []
    models = counted(len(saved), "compiled model was", "compiled models were")
    return [f"{models} kept from earlier: {sum(saved):.1f} s saved"]


def _imprecise(records: List[Record], rounds: List[List[float]]) -> List[str]:
    """Return a note on cases that ended before their result was precise."""
    found = [
        (record, seconds)
        for record, seconds in zip(records, rounds)
        if record.rounds.stopped_by == "budget"
        and record.throughput.spread > LARGEST_PRECISE_SPREAD
    ]
    if not found:
        return []
    budget = max(10.0, *(4 * math.fsum(seconds) for _, seconds in found))
    helps = f"a quieter machine or --budget={budget:.0f} helps"
    if len(found) > 1:
        return [f"{len(found)} cases are not precise (± above 5%); {helps}"]
    ((record, seconds),) = found
    return [
        f"{record.name}: ±{record.throughput.spread:.1%} after "
        f"{counted(len(seconds), 'round')} is not precise; {helps}"
    ]


def _disturbed(records: List[Record]) -> List[str]:
    """Return notes on disturbed cases, and how much other programs took from them."""
    lines = []
    disturbed = list(filter(was_disturbed, records))
    taken = [record for record in disturbed if not in_changing_states(mean_lost(record))]
    if taken:
        share = _span(map(mean_lost, taken))
        lines.append(
            f"{_which(taken)}: disturbed, other programs took {share} of a CPU's time; "
            "--wait-for-quiet=2min waits for a quiet machine"
        )
    changing = [record for record in disturbed if in_changing_states(mean_lost(record))]
    if changing:
        lines.append(
            f"{_which(changing)}: the machine changed its state during the rounds, perhaps because "
            "of other virtual machines on this host: try again later"
        )
    return lines


def _which(records: List[Record]) -> str:
    """Return the name of a single case, or the number of cases."""
    return records[0].name if len(records) == 1 else f"{len(records)} cases"


def _span(shares: Iterable[float]) -> str:
    """Return the range of some shares as percentages; one number if they are equal."""
    known = sorted(shares)
    least, most = percent(known[0], 0), percent(known[-1], 0)
    return most if least == most else f"{least} to {most}"


def _shortened(records: List[Record]) -> List[str]:
    """Return a note on cases with shortened rounds, because this machine is slow."""
    shares = [(one, one.rounds.shortened) for one in records]
    shortened = [(one, share) for one, share in shares if share is not None and share < 1]
    if not shortened:
        return []
    found = [one for one, _ in shortened]
    what = _span(share for _, share in shortened)
    which = _which(found)
    return [f"{which}: a round has {what} of the configured work, because this machine is slow"]
