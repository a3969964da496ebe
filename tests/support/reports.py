"""Documents of results for tests of reports: many cases, and every kind of verdict."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, Sequence

from msgspec import to_builtins

from ipubench.plugins.record.statistics import latency, throughput
from ipubench.plugins.record.structs import NAMESPACE, Around, Benchmark
from ipubench.plugins.record.verdict import Verdict
from ipubench.plugins.report import exports
from ipubench.plugins.results.rows import Report
from ipubench.plugins.results.run_facts import RunFacts
from tests.support.stored import changed

NETWORKS = ("resnet50", "mobilenet", "efficientnet-b0")
BATCH_SIZES = (1, 2, 4, 8, 16)
#: The files of a report.
FILES = {
    "baseline.json",
    "report.html",
    "summary.md",
    "results.csv",
    "verdicts.json",
    "pytest-benchmark.json",
    "github-action-benchmark.json",
    "bencher.json",
}
#: The report's files for other tools, by purpose.
EXPORTS: Dict[str, Callable[[Report], str]] = {
    "pytest-benchmark": exports.pytest_benchmark,
    "github-action-benchmark": exports.github_action_benchmark,
    "bencher": exports.bencher,
    "csv": exports.csv_with_verdicts,
}
#: The name of a case that must be escaped.
NASTY = "<script>alert(1)</script>|`*@someone*`\n</td>"
KINDS = ("pass", "regressed", "improved", "inconclusive", "incomparable", "new")


def benchmark(name: str, function: str = "bench_inference/bench_cnn_torch.py::bench_cnn_torch",
              **options: Any) -> Benchmark:  # fmt: skip
    """Return a measured case; ``options``: batch_size, mode, data, rate, unit, seed, flops."""
    chosen = random.Random(options.get("seed", name))
    batch_size = options.get("batch_size", 1)
    rate = options.get("rate", 100.0)
    items = 10 * batch_size
    seconds = [items / rate * chosen.gauss(1, 0.02) for _ in range(options.get("rounds", 25))]
    canaries = [0.001 * chosen.gauss(1, 0.02) for _ in seconds]
    rates = throughput(seconds, items, options.get("unit", "images/s")[:-2])
    flops = options.get("flops", 8e9)
    config = {
        "name": name.split("-bs")[0],
        "mode": options.get("mode", "inference"),
        "data": options.get("data", "synthetic"),
        "batch_size": batch_size,
    }
    record: Dict[str, Any] = {
        "format": 1,
        "name": name,
        "config": config,
        "overrides": [],
        "effective_options": config,
        "config_hash": "0123456789abcdef",
        "device": {
            "kind": "cpu",
            "name": "Some CPU",
            "fingerprint": "cpu/Some CPU/2 threads",
            "details": {"cores": [0, 1], "environment": {"OMP_NUM_THREADS": "2"}},
        },
        "conditions": {"allocator": "tuned", "affinity": "cores"},
        "effective": {"precision": "bfloat16"},
        "build_seconds": 0.5 + chosen.random(),
        "compile_seconds": 4 * chosen.random(),
        "compile": options.get("compile", "fresh"),
        "first_step_seconds": 0.3,
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "git": "0123456789abcdef0123456789abcdef01234567",
        "workers": 1,
        "framework": None,
        "time": "2026-11-20T10:00:00Z",
        "items_per_round": items,
        "throughput": to_builtins(rates),
        "throughput_mean": rates.mean,
        "rounds": {
            "count": len(seconds),
            "batches_per_step": 10,
            "stopped_by": "precision",
            "dropped_seconds": [0.1],
        },
        "canary": {"kind": "matrix", "seconds": canaries, "when": "before each round"},
        "latency": to_builtins(latency([s / 10 for s in seconds], "single-batch calls")),
        "compute": {
            "flops_per_item": flops,
            "achieved": flops * rate,
            "peak": 2.1e12,
            "share": flops * rate / 2.1e12,
            "copy_peak_bytes_per_s": 3e10,
            "weight_bytes_per_item": 1e8 / batch_size,
        },
        "implausible": False,
        "memory": {"host_peak_rss_bytes": 2**30, "since": "case", "device_peak_bytes": None},
        "counters": {},
        "input": None,
        "data": {"mode": config["data"]},
    }
    per_batch = [value / 10 for value in seconds]
    stats = {
        "min": min(per_batch),
        "max": max(per_batch),
        "mean": sum(per_batch) / len(per_batch),
        "stddev": 0.001,
        "rounds": len(per_batch),
        "median": median(per_batch),
        "iqr": 0.001,
        "q1": min(per_batch),
        "q3": max(per_batch),
        "iqr_outliers": 0,
        "stddev_outliers": 0,
        "outliers": "0;0",
        "ld15iqr": min(per_batch),
        "hd15iqr": max(per_batch),
        "ops": 1 / median(per_batch),
        "total": sum(per_batch),
        "data": per_batch,
        "iterations": 10,
    }
    plain = {
        "group": None,
        "name": f"{function.split('::')[-1]}[{name}]",
        "fullname": f"{function}[{name}]",
        "params": config,
        "param": name,
        "extra_info": {NAMESPACE: record},
        "options": {},
        "stats": stats,
    }
    return Benchmark.of(plain)


def report_on(benchmarks: Sequence[Benchmark], runs: Sequence[RunFacts] = ()) -> Report:
    """Return a report of these cases on some machine."""
    around = Around(
        machine_info={"node": "host", "machine": "x86_64", "python_version": "3.11.7"},
        commit_info={"id": "unknown", "dirty": False},
        datetime="2026-11-20T10:10:00",
        version="5.3.1",
    )
    return Report(benchmarks, runs, around=around)


def verdict(kind: str, rate: float, change: float = 0.0, **more: Any) -> Verdict:
    """Return the gate's verdict of a case, as in the journal."""
    compared = kind not in ("new", "missing", "incomparable")
    reasons = {
        "incomparable": ("another machine (cpu/Other, now cpu/Some CPU)",),
        "inconclusive": ("±6.1% after 12 processes; 3% is needed to say",),
    }
    values: Dict[str, Any] = {
        "before": rate / (1 + change) if kind != "new" else None,
        "now": rate,
        "unit": "images/s",
        "change": change if compared else None,
        "low": change - 0.012 if compared else None,
        "high": change + 0.015 if compared else None,
        "threshold": 0.05,
        "processes": 5,
        "processes_before": 5,
        "reasons": reasons.get(kind, ()),
    }
    return Verdict(kind, **{**values, **more})


def large_report(
    networks: Sequence[str] = NETWORKS, batch_sizes: Sequence[int] = BATCH_SIZES
) -> Report:
    """Return cases with every verdict, one of them failed, and one missing case.

    With all networks and batch sizes there are 60.
    """
    chosen = random.Random(1)
    benchmarks = []
    verdicts = {}
    changes = {"regressed": -0.09, "improved": 0.11, "inconclusive": -0.04}
    for data in ("synthetic", "generated", "real"):
        for network, top in zip(networks, (200, 700, 250)):
            for batch_size in batch_sizes:
                rate = top * batch_size / (batch_size + 1.5) * (0.7 if data == "real" else 1)
                name = f"{network}-bs{batch_size}-{data}"
                options: Dict[str, Any] = {"batch_size": batch_size, "data": data, "rate": rate}
                benchmarks.append(benchmark(name, flops=1e12 / top, **options))
    for network in networks:
        for data in ("synthetic", "generated", "real"):
            case = benchmark(
                f"{network}-{data}",
                "bench_training/bench_cnn_tensorflow.py::bench_cnn_tensorflow",
                mode="training", data=data, rate=20, batch_size=16, compile="reused",
            )  # fmt: skip
            benchmarks.append(case)
    for size in range(6):
        case = benchmark(
            f"dense-{'wide-' * size}bs32", "bench_kernels/bench_dense.py::bench_dense",
            batch_size=32, rate=2e5, unit="items/s", flops=2e6, mode="training",
        )  # fmt: skip
        benchmarks.append(case)
    for index, case in enumerate(benchmarks):
        kind = KINDS[index % 10] if index % 10 < len(KINDS) else "pass"
        rate = case.record.throughput.median
        change = changes.get(kind, 0.0) + chosen.gauss(0, 0.01)
        verdicts[case.fullname] = verdict(kind, rate, change)
    gone = "bench_inference/bench_cnn_torch.py::bench_cnn_torch[vgg16-bs1-synthetic]"
    broken = "bench_inference/bench_triton.py::bench_triton[resnet50-clients1-sync-real]"
    verdicts[gone] = verdict("missing", 0)
    return reported(
        benchmarks,
        verdicts=verdicts,
        outcomes={broken: "failed"},
        baseline="baselines/main.json",
        gate="gate 5.0%",
        command="pytest -m 'inference or training' --baseline=main --gate=5% --report=out",
        started=1.79e9,
        ended=1.79e9 + 4000,
    )


def reported(
    benchmarks: Sequence[Benchmark],
    verdicts: Mapping[str, Verdict] = MappingProxyType({}),
    outcomes: Mapping[str, str] = MappingProxyType({}),
    **facts: Any,
) -> Report:
    """Return a report of cases that ended like this."""
    run = RunFacts(verdicts=dict(verdicts), outcomes=dict(outcomes), exit_code=0, **facts)
    return report_on(benchmarks, [run])


def nasty() -> Report:
    """Return a report of a case whose texts would do harm if run as code."""
    case = changed(benchmark(NASTY), {"record.versions": {NASTY: NASTY}})
    found = verdict("incomparable", 100, reasons=[NASTY])
    return reported([case], {case.fullname: found}, command=NASTY, baseline=NASTY)


def visible(folder: Path) -> List[str]:
    """Return the names in a folder without hidden ones."""
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]
