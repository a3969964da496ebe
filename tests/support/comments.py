"""A stand-in for GitHub and GitLab that holds the comments of one request."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import parse_qs, urlsplit

COMMENTS = re.compile(r"/repos/me/suite/issues/7/comments|/projects/5/merge_requests/7/notes")
ONE = re.compile(r"(/repos/me/suite/issues/comments|/projects/5/merge_requests/7/notes)/(\d+)")


class Comments(HTTPServer):
    """What GitHub and GitLab do with comments, for one request of theirs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: Dict[int, str] = {}
        self.asked: List[Tuple[str, str]] = []
        self.refuses = False
        #: What is answered in place of the comments.
        self.odd: Optional[bytes] = None
        #: Where all questions are sent on to.
        self.elsewhere = ""
        self.tokens: List[Optional[str]] = []


class Handler(BaseHTTPRequestHandler):
    server: Comments

    def answer(self) -> None:
        server, url = self.server, urlsplit(self.path)
        server.asked.append((self.command, url.path))
        token = self.headers["Authorization"] or self.headers["PRIVATE-TOKEN"]
        server.tokens.append(token)
        if server.elsewhere:
            self.send_response(302)
            self.send_header("Location", server.elsewhere)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if server.refuses or token not in ("Bearer one-secret", "one-secret"):
            self.send(403, {"message": f"Resource not accessible with {token}"})
            return
        one = ONE.fullmatch(url.path)
        if self.command == "GET" and COMMENTS.fullmatch(url.path):
            if server.odd is not None:
                self.send_bytes(200, server.odd)
                return
            query = parse_qs(url.query)
            size, page = int(query["per_page"][0]), int(query["page"][0])
            found = [{"id": number, "body": body} for number, body in server.bodies.items()]
            self.send(200, found[size * (page - 1) : size * page])
        elif self.command == "POST" and COMMENTS.fullmatch(url.path):
            server.bodies[max(server.bodies, default=0) + 1] = self.body()
            self.send(201, {})
        elif one and self.command == ("PATCH" if "repos" in url.path else "PUT"):
            assert int(one.group(2)) in server.bodies
            server.bodies[int(one.group(2))] = self.body()
            self.send(200, {})
        else:
            self.send(404, {"message": "Not Found"})

    do_GET = do_POST = do_PATCH = do_PUT = answer

    def body(self) -> str:
        text = self.rfile.read(int(self.headers["Content-Length"]))
        return str(json.loads(text)["body"])

    def send(self, code: int, value: Any) -> None:
        self.send_bytes(code, json.dumps(value).encode())

    def send_bytes(self, code: int, text: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving() -> Iterator[Comments]:
    """Serve on a free port of this machine."""
    server = Comments()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
