"""Calls of the HTTP API: problems, and the rules by which a call is repeated."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit


class Problem(Exception):
    """An error that the server answered: RFC 9457 with a stable code and a cure."""

    def __init__(self, status: int, body: bytes, retry_after: str = "") -> None:
        try:
            self.body: dict[str, Any] = dict(json.loads(body))
        except (ValueError, TypeError):
            self.body = {"detail": body[:500].decode("utf-8", "replace")}
        self.code, self.detail, self.cure = (str(self.body.get(name, "")) for name in ("code", "detail", "cure"))
        self.status, self.retry_after = status, float(retry_after) if retry_after.isdigit() else None
        super().__init__(f"{status} {self.code}: {self.detail}" + (f" ({self.cure})" if self.cure else ""))

    @property
    def is_temporary(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (408, 429) or self.status >= 500


class NoAnswer(Exception):
    """The server did not answer: the call may or may not have taken effect."""


class Ended(Exception):
    """The caller does not wait for the answer any more."""


def backoff(error: Exception, attempt: int) -> float:
    """Return the seconds until a call is repeated for the n-th time, from 0."""
    if isinstance(error, Problem) and error.retry_after is not None:
        return min(error.retry_after, 10.0)
    return min(5.0, 0.1 * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1.5)


class Exchange:
    """One request at a time over one connection, which another thread can abort."""

    def __init__(self, api: Api) -> None:
        self._api, self._is_aborted = api, False
        self._connection: http.client.HTTPConnection | None = None

    def send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str],
             timeout: float) -> http.client.HTTPResponse:
        """Send a request and return the answer, whose body is unread. Raise NoAnswer, or Ended after abort."""
        try:
            if self._connection is None:
                self._connection = self._api.connect(timeout)
                self._connection.connect()
            if self._is_aborted:
                raise Ended
            self._connection.sock.settimeout(timeout)
            self._connection.request(method, self._api.path + path, body, dict(headers))
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if self._is_aborted:
                raise Ended from None
            raise NoAnswer(f"{self._api.url} does not answer: {error or type(error).__name__}") from error

    def read(self, part: Callable[[], bytes]) -> bytes:
        """Read an answer by its read or readline. Raise NoAnswer, or Ended after abort."""
        try:
            return part()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if self._is_aborted:
                raise Ended from None
            raise NoAnswer(f"{self._api.url} did not complete its answer: {error}") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def abort(self) -> None:
        """End the request of another thread: it raises Ended."""
        self._is_aborted = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)


class Api:
    """A server and a token. Safe for concurrent use; connections are reused."""

    def __init__(self, url: str, token: str | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be http://host:port or https://host:port, got {url!r}")
        self.url, self.path, self._token = url, parts.path.rstrip("/"), token
        self._host, self._port = parts.hostname, parts.port
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._idle: list[Exchange] = []
        self._lock = threading.Lock()

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def headers(self, **more: str) -> dict[str, str]:
        token = {"Authorization": "Bearer " + self._token} if self._token else {}
        return {"Accept": "application/json", "User-Agent": "taskledger-python", **token, **more}

    def once(self, method: str, path: str, body: Any = None, *, text: bytes | None = None,
             headers: Mapping[str, str] | None = None, timeout: float = 30.0, exchange: Exchange | None = None) -> Any:
        """Send a request once, and return the JSON of the answer. Raise Problem or NoAnswer. text replaces body."""
        data = text if body is None else json.dumps(body, allow_nan=False).encode()
        content_type = {} if data is None else {"Content-Type": "application/json"}
        with self._lock:
            used = exchange or (self._idle.pop() if self._idle else Exchange(self))
        answer = used.send(method, path, data, {**self.headers(), **(headers or {}), **content_type}, timeout)
        content = used.read(answer.read)
        if exchange is None:
            with self._lock:
                self._idle.append(used)
        if answer.status >= 400:
            raise Problem(answer.status, content, answer.getheader("Retry-After", ""))
        try:
            return json.loads(content) if content else None
        except ValueError as error:
            raise NoAnswer(f"{self.url} answered with invalid JSON: {error}") from error

    def repeat(self, method: str, path: str, body: Any = None, *, pause: Callable[[float], bool],
               **request: Any) -> Any:
        """Send a request until it is answered. pause waits for seconds; if it returns True, Ended is raised."""
        for attempt in range(1_000_000):
            try:
                return self.once(method, path, body, **request)
            except (Problem, NoAnswer) as error:
                if isinstance(error, Problem) and not error.is_temporary:
                    raise
                if pause(backoff(error, attempt)):
                    raise Ended from error
        raise Ended


def until(deadline: float | None) -> Callable[[float], bool]:
    """Return a pause that ends at a time of time.monotonic()."""
    def pause(seconds: float) -> bool:
        is_late = deadline is not None and time.monotonic() + seconds >= deadline
        time.sleep(0 if is_late else seconds)
        return is_late
    return pause
