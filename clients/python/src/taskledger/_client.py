"""Enqueue over HTTP, wait for results, and subscribe to events."""

from __future__ import annotations

import asyncio
import collections
import functools
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, Unpack
from urllib.parse import quote, urlencode

from . import _telemetry
from ._enqueue import Enqueued, Options, OtherArgs, body
from ._http import Api, Ended, Exchange, NoAnswer, Problem, backoff, until

FINAL = ("succeeded", "dead", "cancelled", "expired", "discarded")


class TaskFailed(Exception):
    """The task that was waited for is dead, cancelled, expired or discarded."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.state = str(task["state"])
        cause = task.get("error") or task.get("reason") or ""
        super().__init__(f"{task['kind']}/{task['biz_id']} is {self.state}" + (f": {cause}" if cause else ""))


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the ledger. Store id with its effect: events(start_after=id) continues there."""

    id: str
    type: str
    kind: str
    biz_id: str
    version: int
    attempt: int
    position: int
    recorded_at: datetime
    data: Any
    body: dict[str, Any]


class Client:
    """Calls of the HTTP API in threads. Safe for concurrent use. tls is the context of an https address.

    As a context manager, it closes its connections at the end.
    """

    def __init__(self, url: str, token: str | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self._api = Api(url, token, tls=tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that no call uses. A later call opens a new one."""
        with self._api._lock:
            idle, self._api._idle = self._api._idle, []
        for exchange in idle:
            exchange.close()

    def enqueue(self, kind: str, biz_id: str, args: Any = None, *, timeout: float | None = 30.0,
                **options: Unpack[Options]) -> Enqueued:
        """Enqueue a task. It is repeated for timeout seconds: a key names one task, so that this is safe.

        Raise OtherArgs if the task exists with other args. In a transaction of your own, use an adapter's enqueue.
        """
        stop = None if timeout is None else time.monotonic() + timeout
        try:
            answer = self._api.repeat("POST", "/v1/tasks", body(kind, biz_id, args, options), pause=until(stop),
                                      headers=_telemetry.carrier())
        except Problem as problem:
            if problem.code == "other_args":
                raise OtherArgs(problem.detail) from problem
            raise
        except Ended as ended:
            raise TimeoutError(f"{kind}/{biz_id} may not be enqueued: {ended.__cause__}") from ended.__cause__
        return Enqueued(answer["new"], answer["state"], answer["version"], answer["same_args"], answer["position"],
                        answer.get("archived", False))

    def wait(self, kind: str, biz_id: str, timeout: float | None = None) -> Any:
        """Wait until the task has finished, and return its result.

        Raise TaskFailed if it has not succeeded, TimeoutError after timeout seconds, Problem if it does not exist.
        """
        stop = None if timeout is None else time.monotonic() + timeout
        path = f"/v1/tasks/{quote(kind, safe='')}/{quote(biz_id, safe='')}"
        while True:
            left = 20.0 if stop is None else max(0.0, min(20.0, stop - time.monotonic()))
            try:
                task = self._api.repeat("GET", f"{path}?wait={int(left)}", pause=until(stop), timeout=left + 15)
            except Ended as ended:
                raise TimeoutError(f"no answer about {kind}/{biz_id}: {ended.__cause__}") from ended.__cause__
            if task["state"] == "succeeded":
                return task.get("result")
            if task["state"] in FINAL:
                raise TaskFailed(task)
            if stop is not None and time.monotonic() >= stop:
                raise TimeoutError(f"{kind}/{biz_id} is {task['state']} after {timeout} s")
            time.sleep(min(left, 0.1) if left < 1 else 0)  # the server waits whole seconds

    def events(self, *, start_after: str | int | None = None, kinds: Iterable[str] = (), types: Iterable[str] = (),
               stop: threading.Event | None = None, _exchange: Exchange | None = None) -> Iterator[Event]:
        """Yield events as they are committed, for ever or until stop; after a lost connection from the last one on.

        start_after is the id of the last event that the caller has handled, or 0 for the beginning. Default: now. The
        first events of a resumed stream may have been seen before: compare kind, biz_id and version.
        """
        chosen = [("kind", kind) for kind in kinds] + [("type", type_) for type_ in types]
        last, exchange, failures = "" if start_after is None else str(start_after), _exchange or Exchange(self._api), 0
        seen: collections.OrderedDict[tuple[str, str, int], None] = collections.OrderedDict()
        while stop is None or not stop.is_set():
            resumed = [("after", last)] if last else []
            headers = self._api.headers(Accept="text/event-stream")
            try:
                answer = exchange.send("GET", "/v1/events?" + urlencode(chosen + resumed), None, headers, 30.0)
                if answer.status != 200:
                    raise Problem(answer.status, exchange.read(answer.read), answer.getheader("Retry-After", ""))
                for last, data in _frames(iter(functools.partial(exchange.read, answer.readline), b"")):
                    failures = 0
                    if stop is not None and stop.is_set():
                        return
                    e = json.loads(data) if data else None
                    if e is None or (key := (e["kind"], e["biz_id"], e["version"])) in seen:
                        continue
                    seen[key] = None
                    if len(seen) > 50_000:
                        seen.popitem(last=False)
                    yield Event(last, e["type"], *key, e["attempt"], e["position"],
                                datetime.fromisoformat(e["recorded_at"]), e.get("data"), e)
                error: Exception = NoAnswer("the stream ended")
            except Ended:
                return
            except (Problem, NoAnswer) as cause:
                if isinstance(cause, Problem) and not cause.is_temporary:
                    raise
                error = cause
            finally:
                exchange.close()
            pause = backoff(error, failures)
            failures += 1
            if stop is None:
                time.sleep(pause)
            elif stop.wait(pause):
                return


def _frames(lines: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    """Parse Server-Sent Events: the id and the data of each."""
    last, data = "", []
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            last = value
        elif name == "data":
            data.append(value)
        elif not line and (data or last):
            yield last, "\n".join(data)
            data = []


class AsyncClient:
    """The calls of Client in coroutines."""

    def __init__(self, url: str, token: str | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self._client = Client(url, token, tls=tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    async def enqueue(self, kind: str, biz_id: str, args: Any = None, *, timeout: float | None = 30.0,
                      **options: Unpack[Options]) -> Enqueued:
        return await asyncio.to_thread(
            functools.partial(self._client.enqueue, kind, biz_id, args, timeout=timeout, **options))

    async def wait(self, kind: str, biz_id: str, timeout: float | None = None) -> Any:
        return await asyncio.to_thread(self._client.wait, kind, biz_id, timeout)

    async def events(self, *, start_after: str | int | None = None, kinds: Iterable[str] = (),
                     types: Iterable[str] = ()) -> AsyncIterator[Event]:
        stop, exchange = threading.Event(), Exchange(self._client._api)
        events = self._client.events(start_after=start_after, kinds=kinds, types=types, stop=stop, _exchange=exchange)
        try:
            while (event := await asyncio.to_thread(lambda: next(events, None))) is not None:
                yield event
        finally:
            stop.set()
            exchange.abort()
