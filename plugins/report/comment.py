"""Puts a report's summary under a pull or merge request, in one comment that later runs replace.

python -m ipubench.plugins.report.comment report/summary.md --name=benchmarks

The comment begins with a hidden line that has the name, and only the comment with this line is
changed: other workflows and people keep theirs. What it needs is in the variables of the job:

- GitHub: GITHUB_REPOSITORY, GITHUB_API_URL, GITHUB_EVENT_PATH and GH_TOKEN, which may write
  pull requests;
- GitLab: CI_API_V4_URL, CI_PROJECT_ID, CI_MERGE_REQUEST_IID and BENCHMARK_TOKEN, a project access
  token with the scope `api`.

Exit codes: 0; 1, the service refuses or cannot be reached; 4, the command line, the file or the job
cannot be used.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from ipubench.fixtures.case.masking import mask_text, remember
from ipubench.fixtures.case.untrusted import has_fields, parse_json, read_bytes, read_json
from ipubench.plugins.record.text import EXIT_USAGE, Parser

MOST_EVENT = 16 << 20  # bytes
MOST_ANSWER = 256 << 20  # bytes; GitLab takes a million characters for a comment
PAGE = 100  # comments in one answer
MOST_PAGES = 50
TIMEOUT_SECONDS = 60.0
NAME = re.compile(r"[\w .:/-]{1,80}")
#: What a header may hold; its end would begin another one.
TOKEN = re.compile(r"[\x21-\x7e\xa1-\xff]+")
#: The variables of a job that are read, the one that says whose job it is first.
OF_GITHUB = ("GITHUB_REPOSITORY", "GITHUB_API_URL", "GITHUB_EVENT_PATH", "GH_TOKEN")
OF_GITLAB = ("CI_API_V4_URL", "CI_PROJECT_ID", "CI_MERGE_REQUEST_IID", "BENCHMARK_TOKEN")


class CommentError(Exception):
    """There can be no comment; the message says why and what to do."""

    def __init__(self, message: str, code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Service:
    """Where the comments of one request are, and how one is changed."""

    comments: str  # address of all comments of the request
    changed: str  # address before a comment's number
    method: str  # that changes one
    token: str
    headers: Dict[str, str]

    @classmethod
    def of_job(cls, job: Mapping[str, str]) -> Service:
        """Return the service that the variables of a job name. Raises CommentError."""
        if "GITHUB_REPOSITORY" in job:
            return cls._github(job)
        if "CI_API_V4_URL" in job:
            return cls._gitlab(job)
        raise CommentError(
            "this is no job of GitHub or GitLab: neither GITHUB_REPOSITORY nor CI_API_V4_URL is "
            "set; --help names all that it reads"
        )

    @classmethod
    def _github(cls, job: Mapping[str, str]) -> Service:
        token, path = _token(job, "GH_TOKEN"), _needed(job, "GITHUB_EVENT_PATH")
        try:
            event = read_json(Path(path), MOST_EVENT)
        except OSError as error:
            raise CommentError(f"the job's event cannot be read: {error}") from None
        if not has_fields(event, {"pull_request.number": int}):
            raise CommentError(f"the job's event {path} names no pull request")
        number = event["pull_request"]["number"]
        api = _needed({"GITHUB_API_URL": "https://api.github.com", **job}, "GITHUB_API_URL")
        issues = f"{api}/repos/{job['GITHUB_REPOSITORY']}/issues"
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        return cls(f"{issues}/{number}/comments", f"{issues}/comments", "PATCH", token, headers)

    @classmethod
    def _gitlab(cls, job: Mapping[str, str]) -> Service:
        project, number = _needed(job, "CI_PROJECT_ID"), _needed(job, "CI_MERGE_REQUEST_IID")
        api, token = _needed(job, "CI_API_V4_URL"), _token(job, "BENCHMARK_TOKEN")
        notes = f"{api}/projects/{project}/merge_requests/{number}/notes"
        return cls(notes, notes, "PUT", token, {"PRIVATE-TOKEN": token})

    def put(self, marker: str, text: str) -> str:
        """Replace the comment that begins with ``marker``, or add one; say which."""
        body = {"body": f"{marker}\n{text}"}
        for comment in self._all():
            if _first_line(comment) == marker:
                self._ask(f"{self.changed}/{comment['id']}", self.method, body)
                return "replaced"
        self._ask(self.comments, "POST", body)
        return "added"

    def _all(self) -> Iterator[Dict[str, Any]]:
        for page in range(1, MOST_PAGES + 1):
            address = f"{self.comments}?per_page={PAGE}&page={page}"
            found = _comments(self._ask(address))
            if found is None:
                raise CommentError(f"GET {address}: the answer is no list of comments", 1)
            yield from found
            if len(found) < PAGE:
                return

    def _ask(
        self, address: str, method: str = "GET", body: Optional[Dict[str, str]] = None
    ) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(  # noqa: S310  (the job names the service)
                address, data, {"Content-Type": "application/json"}, method=method
            )
            for name, value in self.headers.items():
                # The token is for this address, and not for one that an answer leads to.
                request.add_unredirected_header(name, value)
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=TIMEOUT_SECONDS
            ) as answer:
                content: bytes = answer.read(MOST_ANSWER)
                return content
        except urllib.error.HTTPError as error:
            why = f"{error.code} {error.reason}: {_said(error)}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = str(error) or repr(error)
        # Services repeat what they were sent.
        remember([self.token])
        said = mask_text(f"{method} {address}: {why}")
        raise CommentError(f"{said}; may the job's token write comments?", 1)


def _comments(content: bytes) -> Optional[List[Dict[str, Any]]]:
    """Return the comments of an answer; None where it is another one."""
    try:
        found = parse_json(content)
    except ValueError:
        return None
    sound = isinstance(found, list) and all(has_fields(one, {"id": int}) for one in found)
    return found if sound else None


def _said(refusal: urllib.error.HTTPError) -> str:
    try:
        return refusal.read(300).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return repr(error)


def _needed(job: Mapping[str, str], name: str) -> str:
    value = job.get(name, "")
    if not value:
        raise CommentError(f"{name} is not set in this job")
    return value


def _token(job: Mapping[str, str], name: str) -> str:
    """Return a token without the blanks and ends of lines round it. Raises CommentError."""
    token = _needed(job, name).strip()
    if not TOKEN.fullmatch(token):
        raise CommentError(
            f"{name} has characters that no token has, such as the end of a line: set it anew"
        )
    return token


def _first_line(comment: Dict[str, Any]) -> str:
    return (str(comment.get("body") or "").splitlines() or [""])[0].strip()


def main(words: Optional[Sequence[str]] = None) -> int:
    """Put a file into its comment; return the exit code."""
    parser = Parser(
        prog="python -m ipubench.plugins.report.comment",
        description="Put a report's summary into one comment of a pull or merge request.",
        epilog=f"It reads variables of the job: on GitHub {', '.join(OF_GITHUB)}; on GitLab "
        f"{', '.join(OF_GITLAB)}.",
    )
    parser.add_argument("summary", type=Path, metavar="FILE", help="a report's summary.md")
    parser.add_argument(
        "--name", required=True, help="of the workflow; the comment with this name is replaced"
    )
    given = parser.parse_args(words)
    try:
        if not NAME.fullmatch(given.name) or "--" in given.name:
            raise CommentError(f"--name={given.name}: write letters, digits, spaces and . : / - _")
        try:
            text = read_bytes(given.summary, MOST_EVENT).decode("utf-8")
        except (OSError, ValueError) as error:
            raise CommentError(f"{given.summary} cannot be read: {error}") from None
        how = Service.of_job(os.environ).put(f"<!-- ipubench: {given.name} -->", text)
    except CommentError as error:
        print(error, file=sys.stderr)
        return error.code
    print(f"the comment of {given.name} was {how}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
