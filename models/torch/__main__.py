"""``python -m ipubench.models.torch fetch MODEL``: downloads a network's published weights."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn, Optional, Sequence

from ipubench.models.torch.architectures import ARCHITECTURES
from ipubench.models.torch.classification import place_of_weights

EXIT_FAILED, EXIT_USAGE = 1, 4
PUBLISHED = [name for name, network in ARCHITECTURES.items() if network.pretrained]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line and return the exit code."""
    parser = _Parser(prog="python -m ipubench.models.torch")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    meaning = "download published weights into the local torch cache"
    command = commands.add_parser("fetch", help=meaning, description=meaning)
    command.add_argument("models", nargs="+", metavar="MODEL", help=", ".join(PUBLISHED))
    command.add_argument("--dry-run", action="store_true", help="print what would be downloaded")
    given = parser.parse_args(arguments)
    for model in given.models:
        if model not in PUBLISHED:
            command.error(f"{model!r}: the networks with weights are {', '.join(PUBLISHED)}")
    failed = [model for model in given.models if not fetch(model, given.dry_run)]
    return EXIT_FAILED if failed else 0


def fetch(model: str, dry_run: bool) -> bool:
    """Download a network's weights unless they are there. Returns False if that fails."""
    try:
        import torch
    except ImportError as error:
        print(f"{model}: PyTorch, which downloads and reads weights, is missing: {error}")
        return False
    url, path = ARCHITECTURES[model].pretrained, place_of_weights(model)
    if path.is_file():
        print(f"{model}: {path} is there")
        return True
    print(f"{model}: {url}\n  to {path}", flush=True)
    if dry_run:
        return True
    digest = path.stem.rpartition("-")[2]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Checks the digest of what it has downloaded, then renames it.
        torch.hub.download_url_to_file(url, str(path), hash_prefix=digest, progress=False)
    except (OSError, RuntimeError) as error:
        print(
            f"{model}: the download failed: {error}\n"
            f"  download it on another machine, and put it there as {path}"
        )
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
