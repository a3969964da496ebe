"""A fleet on this machine: each host has a copy of the project, separate leases and results."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Dict, List

from tests.support.harness import Project


def as_host(project: Project, name: str) -> Path:
    """Copy a project for a host; return the copy."""
    folder = project.folder / "hosts" / name
    folder.mkdir(parents=True)
    for file in ("conftest.py", "pytest.ini", "bench_fake.py"):
        shutil.copy(project.folder / file, folder)
    return folder


def as_hosts(project: Project, **words: str) -> List[str]:
    """Return options for local hosts: ``words`` are those of ``--tx``, by name.

    The hosts are not separate machines, so they would alternate on a common device: each has a
    numbered one.
    """
    found = []
    for name, more in words.items():
        folder = project.folder / "hosts" / name
        if not folder.exists():
            as_host(project, name)
        parts = [f"popen//id={name}//chdir={folder}", "env:IPUBENCH_FAKE_COUNT=1"]
        parts += [f"env:IPUBENCH_LEASE_DIR={folder}/leases", more]
        found.append(f"--tx={'//'.join(filter(None, parts))}")
    return found


def hosts_of(project: Project) -> Dict[str, str]:
    """Return case -> host, of the latest run."""
    return {name: record["host"] for name, record in project.records().items()}
