"""An attempt as its handler sees it, and its outcome."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ._enqueue import Seconds, in_or_at, seconds

log = logging.getLogger("taskledger")
MAX_RESULT = 256 * 1024  # bytes


class Permanent(Exception):
    """Raised by a handler: the task is dead, and is not tried again."""


class Retry(Exception):
    """Raised by a handler: the attempt has failed, and the next begins after a delay.

    safe=True states, for the guarantee "at most once", that nothing has happened.
    """

    def __init__(self, message: str, retry_in: Seconds | None = None, *, safe: bool = False) -> None:
        super().__init__(message)
        self.retry_in, self.safe = None if retry_in is None else seconds(retry_in), safe


class Snooze(Exception):
    """Raised by a handler: the task continues later, and has not failed."""

    def __init__(self, until: Seconds | datetime) -> None:
        super().__init__(f"snoozed until {until}")
        self.until, self.body = until, in_or_at("Snooze", until)


class Cancelled(Exception):
    """Raised by Job.check: the attempt is over. Its outcome is not reported."""


@dataclass(eq=False)
class Job:
    """One attempt of a task. args is the decoded JSON, or bytes if they are not JSON."""

    kind: str
    biz_id: str
    args: Any = None
    attempt: int = 1
    version: int = 1
    priority: int = 3
    available_at: datetime | None = None
    finish_by: datetime | None = None
    timeout: float = 900.0
    traceparent: str | None = None
    tracestate: str | None = None
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    reason: str = ""  # of cancelled: cancelled, timeout, deadline, fenced, unknown or shutdown
    report: Callable[[Any], None] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, task: Mapping[str, Any]) -> Job:
        """Return the job of a task as the server gave it."""
        raw = task.get("args_base64")
        names = ("attempt", "version", "priority", "timeout", "traceparent", "tracestate")
        members: dict[str, Any] = {n: task[n] for n in names if n in task}
        members.update({n: datetime.fromisoformat(task[n]) for n in ("available_at", "finish_by") if task.get(n)})
        return cls(task["kind"], task["biz_id"], task.get("args") if raw is None else base64.b64decode(raw), **members)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger taskledger, whose lines begin with the task and the attempt."""
        return _Adapter(log, {"kind": self.kind, "biz_id": self.biz_id, "attempt": self.attempt})

    def check(self) -> None:
        """Raise Cancelled if the attempt is over. A handler in a thread calls it between its steps."""
        if self.cancelled.is_set():
            raise Cancelled(self.reason)

    def progress(self, value: Any) -> None:
        """Report how far the work is, as JSON of at most 16 KiB; at most one report a second is recorded."""
        if self.report is None:
            raise RuntimeError("progress is not available if the worker finishes tasks in its own database")
        self.report(value)

    async def aprogress(self, value: Any) -> None:
        """Like progress, in a coroutine."""
        await asyncio.to_thread(self.progress, value)

    def cancel(self, reason: str) -> None:
        if not self.cancelled.is_set():
            self.reason = reason
            self.cancelled.set()


class _Adapter(logging.LoggerAdapter):  # type: ignore[type-arg]
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        extra: Any = self.extra
        return f"{extra['kind']}/{extra['biz_id']} #{extra['attempt']}: {msg}", {**kwargs, "extra": extra}


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: the verb finish, fail or snooze, and the members of its call."""

    verb: str
    body: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None


def finished(value: Any) -> Outcome:
    """Return the outcome of a handler that returned value. Raise ValueError if that is not JSON."""
    try:
        size = len(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the handler's result is not JSON: {error}") from error
    if size > MAX_RESULT:
        raise ValueError(f"the handler's result has {size} bytes, at most {MAX_RESULT} are stored: return a reference")
    return Outcome("finish", {} if value is None else {"result": value})


def failed(error: BaseException, retry: Mapping[str, Any] | None, job: Job) -> Outcome:
    """Return the outcome of a handler that raised error."""
    if isinstance(error, Snooze):
        return Outcome("snooze", error.body, error)
    try:
        text = str(error) or type(error).__name__
    except Exception as reason:  # of its __str__
        text = f"{type(error).__name__}, whose text cannot be made: {reason}"
    if isinstance(error, (Cancelled, asyncio.CancelledError)):
        text = f"the handler was cancelled: {job.reason}"
    elif not job.cancelled.is_set():
        job.log.warning("the attempt failed: %s", text, exc_info=error)
    cause = error.__cause__ if isinstance(error, (Permanent, Retry)) and error.__cause__ else error
    body: dict[str, Any] = {"error": printable(text, 4096), "error_type": printable(type(cause).__qualname__, 512),
                            "stack": printable("".join(traceback.format_exception(error)), 16384)}
    if isinstance(error, Permanent):
        body["permanent"] = True
    if isinstance(error, Retry):
        body.update(safe=error.safe, **({} if error.retry_in is None else {"retry_in": error.retry_in}))
    if retry is not None:
        body["retry"] = dict(retry)
    return Outcome("fail", body, error)


def printable(text: str, most: int) -> str:
    """Return text as UTF-8 that JSON and PostgreSQL can store, of at most so many bytes."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


