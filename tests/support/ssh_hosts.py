"""Real hosts for a test: sshd processes, each in a separate network and UTS namespace.

They share this machine's files, so each has its own home, leases and results. Needs root,
namespaces and openssh-server; :func:`why_not` returns what is missing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Iterator, List

from tests.support.harness import ROOT

PORT = 2222
MOST_WAIT = 20.0


def why_not() -> str:
    """Return what is missing for such hosts and how to get it; '' if nothing is."""
    if _sshd() is None:
        return "needs sshd: apt-get install openssh-server"
    for program in ("ip", "ssh", "ssh-keygen", "unshare"):
        if shutil.which(program) is None:
            return f"needs {program}: apt-get install iproute2 openssh-client util-linux"
    if os.geteuid() != 0:
        return "needs root, which may make network namespaces"
    name = f"ipub-try-{os.getpid()}"
    tried = _run("ip", "netns", "add", name)
    if tried.returncode != 0:
        return f"network namespaces are not allowed here: {tried.stderr.strip()}"
    _run("ip", "netns", "delete", name)
    return ""


def _sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


class SshHost:
    """An sshd in a namespace."""

    def __init__(self, folder: Path, name: str, number: int) -> None:
        self.name = name
        self.home = folder / name
        self.home.mkdir()
        self._space = f"ipub-{os.getpid()}-{number}"
        self._links = [f"ipub{os.getpid() % 10000}{side}{number}" for side in "ab"]
        net = (os.getpid() * 8 + number) % (1 << 14)
        self._addresses = [f"10.213.{net >> 6}.{net % 64 * 4 + side}" for side in (1, 2)]
        self._key = folder / "key"

    @property
    def address(self) -> str:
        return self._addresses[1]

    def start(self) -> None:
        """Create the namespace and start sshd in it."""
        ours, theirs = self._links
        for words in (
            ("ip", "netns", "add", self._space),
            ("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs),
            ("ip", "link", "set", theirs, "netns", self._space),
            ("ip", "address", "add", f"{self._addresses[0]}/30", "dev", ours),
            ("ip", "link", "set", ours, "up"),
            ("ip", "-n", self._space, "address", "add", f"{self.address}/30", "dev", theirs),
            ("ip", "-n", self._space, "link", "set", theirs, "up"),
            ("ip", "-n", self._space, "link", "set", "lo", "up"),
            # To our addresses in the others' networks.
            ("ip", "-n", self._space, "route", "add", "default", "via", self._addresses[0]),
        ):
            done = _run(*words)
            assert done.returncode == 0, f"{words}: {done.stderr}"
        config = self.home / "sshd_config"
        config.write_text(
            "\n".join(
                [
                    f"Port {PORT}",
                    f"HostKey {self._key}",
                    f"AuthorizedKeysFile {self._key}.pub",
                    "PermitRootLogin prohibit-password",
                    "StrictModes no",
                    "UsePAM no",
                    "PidFile none",
                    f"SetEnv HOME={self.home} IPUBENCH_LEASE_DIR={self.home}/leases "
                    f"IPUBENCH_CACHE_DIR={self.home}/cache PYTHONPATH={ROOT}",
                ]
            ),
            encoding="utf-8",
        )
        sshd = _sshd()
        assert sshd is not None
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it
        command = f"hostname {self.name}; exec {sshd} -D -e -f {config}"
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", self._space, "unshare", "--uts", "sh", "-c", command],
            stderr=(self.home / "sshd.log").open("w"),
        )

    def wait(self) -> None:
        """Wait until login works."""
        until = time.monotonic() + MOST_WAIT
        config = self.home.parent / "ssh_config"
        while True:
            tried = _run("ssh", "-F", str(config), self.name, "true")
            if tried.returncode == 0:
                return
            log = (self.home / "sshd.log").read_text()
            assert time.monotonic() < until, f"{self.name}: {tried.stderr}{log}"
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill all of its processes, as in a crash of the machine."""
        pids = _run("ip", "netns", "pids", self._space).stdout.split()
        _run("kill", "-9", *pids)

    def stop(self) -> None:
        """Stop it and remove everything."""
        self.kill()
        with contextlib.suppress(AttributeError):
            self._process.wait()
        _run("ip", "link", "delete", self._links[0])
        _run("ip", "netns", "delete", self._space)


@contextlib.contextmanager
def ssh_hosts(folder: Path, *names: str) -> Iterator[List[SshHost]]:
    """Start hosts; ``folder/ssh_config`` connects to them by name."""
    folder.mkdir()
    made = _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    assert made.returncode == 0, made.stderr
    hosts = [SshHost(folder, name, number) for number, name in enumerate(names)]
    config = [
        line
        for host in hosts
        for line in (
            f"Host {host.name} {host.address}",
            f"  HostName {host.address}",
            f"  Port {PORT}",
        )
    ]
    config += ["Host *", "  User root", f"  IdentityFile {folder / 'key'}", "  IdentitiesOnly yes"]
    config += [f"  UserKnownHostsFile {folder / 'known'}", "  StrictHostKeyChecking accept-new"]
    # The default is quantum-safe, which takes ten times as long.
    config += ["  LogLevel ERROR", "  KexAlgorithms curve25519-sha256"]
    (folder / "ssh_config").write_text("\n".join(config) + "\n", encoding="utf-8")
    with contextlib.ExitStack() as running:
        for host in hosts:
            running.callback(host.stop)
            host.start()
        for host in hosts:
            host.wait()
        yield hosts
