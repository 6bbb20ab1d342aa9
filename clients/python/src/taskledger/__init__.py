"""Client of taskledger: enqueue in your transaction, work on tasks, wait for results, subscribe to events."""

from ._client import AsyncClient, Client, Event, TaskFailed
from ._enqueue import Enqueued, Options, OtherArgs
from ._exactly import AsyncDatabase, Database
from ._http import NoAnswer, Problem
from ._job import Cancelled, Job, Permanent, Retry, Snooze
from ._telemetry import JobFilter
from ._worker import Worker

__all__ = [
    "AsyncClient", "AsyncDatabase", "Cancelled", "Client", "Database", "Enqueued", "Event", "Job", "JobFilter",
    "NoAnswer", "Options", "OtherArgs", "Permanent", "Problem", "Retry", "Snooze", "TaskFailed", "Worker",
]
