"""A fleet on this machine: each host has a copy of the project, separate leases and results."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Dict

from tests.support.harness import Project


def as_host(project: Project, name: str) -> Path:
    """Copy a project for a host; return the copy."""
    folder = project.folder / "hosts" / name
    folder.mkdir(parents=True)
    for file in ("conftest.py", "pytest.ini", "bench_fake.py"):
        shutil.copy(project.folder / file, folder)
    return folder


def hosts_file(project: Project, **words: str) -> str:
    """Write a file of local hosts, ``words`` by name; return the option that names it.

    The hosts are not separate machines, so they would alternate on a common device: each has a
    numbered one.
    """
    lines = []
    for name, more in words.items():
        folder = project.folder / "hosts" / name
        if not folder.exists():
            as_host(project, name)
        lines.append(
            f"popen id={name} chdir={folder} env:IPUBENCH_FAKE_COUNT=1 "
            f"env:IPUBENCH_LEASE_DIR={folder}/leases {more}"
        )
    path = project.folder / "hosts.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return f"--hosts={path}"


def hosts_of(project: Project) -> Dict[str, str]:
    """Return case -> host, of the latest run."""
    return {name: record["host"] for name, record in project.records().items()}
