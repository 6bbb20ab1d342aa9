"""Handlers in tests: run one with given args, in this process, without a server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

from ._job import Job, Outcome
from ._worker import Attempt, Worker

__all__ = ["Tested", "arun", "run"]


@dataclass(frozen=True)
class Tested:
    """How the attempt ended. retry_in and snoozed are what the handler asked for."""

    outcome: Literal["finished", "failed", "dead", "snoozed"]
    result: Any = None
    error: BaseException | None = None
    retry_in: float | None = None
    snoozed: float | str | None = None
    progress: list[Any] = field(default_factory=list)


def run(worker: Worker, kind: str, biz_id: str, args: Any = None, *, connection: Any = None, cancelled: str = "",
        **members: Any) -> Tested:
    """Run the worker's handler of a kind. members are those of Job, such as attempt. cancelled is a reason for which the
    attempt is over from the beginning. A handler of a worker with a database gets connection; nothing is committed.
    """
    return asyncio.run(arun(worker, kind, biz_id, args, connection=connection, cancelled=cancelled, **members))


async def arun(worker: Worker, kind: str, biz_id: str, args: Any = None, *, connection: Any = None, cancelled: str = "",
               **members: Any) -> Tested:
    """Like run, in the caller's event loop."""
    if kind not in worker.handlers:
        raise ValueError(f"the worker has no handler of {kind}")
    job = Job(kind, biz_id, args, **members)
    progress: list[Any] = []
    if worker.guarantee != "exactly once":
        job.report = progress.append
    if cancelled:
        job.cancel(cancelled)
    if worker.guarantee == "exactly once" and connection is None:
        raise ValueError("the worker has a database: give the handler a connection, as in connection=db")
    arguments = () if worker.guarantee != "exactly once" else (connection,)
    attempt = Attempt(job, "test", "test", {})
    outcome: Outcome = await (worker.ainvoke(attempt, *arguments) if worker.handlers[kind].is_async
                              else asyncio.to_thread(worker.invoke, attempt, *arguments))
    if outcome.verb == "finish":
        return Tested("finished", outcome.body.get("result"), progress=progress)
    if outcome.verb == "snooze":
        return Tested("snoozed", snoozed=outcome.body.get("in", outcome.body.get("at")), progress=progress)
    return Tested("dead" if outcome.body.get("permanent") else "failed", error=outcome.error,
                  retry_in=outcome.body.get("retry_in"), progress=progress)
