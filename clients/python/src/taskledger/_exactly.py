"""Exactly once: attempts that begin, work and end in the worker's own database, in SQL."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ._enqueue import call
from ._http import Ended, backoff
from ._job import Outcome, failed, log

if TYPE_CHECKING:
    from ._worker import Attempt, Worker


class Database(Protocol):
    """Transactions, each on a connection of its own, and statements with $1, $2, ..., whose values are text."""

    is_async: Literal[False]

    def transaction(self) -> AbstractContextManager[Any]: ...
    def rows(self, connection: Any, sql: str, values: Sequence[str]) -> list[Any]: ...


class AsyncDatabase(Protocol):
    """Like Database, in coroutines."""

    is_async: Literal[True]

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...
    async def rows(self, connection: Any, sql: str, values: Sequence[str]) -> list[Any]: ...


AnyDatabase = Database | AsyncDatabase
REFUSED = ("22", "42", "0A", "28", "3D")  # classes of SQLSTATE: the next call would fail too


def sqlstate(error: BaseException | None) -> str:
    """Return the SQLSTATE of a driver's error, or ""."""
    while error is not None:
        for e in (error, getattr(error, "orig", None)):
            code = getattr(e, "sqlstate", None) or getattr(e, "pgcode", None)
            if code:
                return str(code)
        error = error.__cause__
    return ""


class Exactly:
    """A worker's attempts in its own database."""

    def __init__(self, worker: Worker, database: AnyDatabase) -> None:
        self._worker, self._database = worker, database
        self.name = f"{worker.name}-{worker.session[:8]}"[-128:]  # a lease belongs to one process
        self._renewed = threading.Lock()

    def renew(self, lease_for: str = "30 seconds") -> None:
        """Renew the lease: while it lasts, no other worker takes over this worker's attempts."""
        kinds = "{" + ",".join(f'"{kind}"' for kind in self._worker.handlers) + "}"
        with self._renewed:
            self._run(*call("heartbeat", "", {"worker": (self.name, "text"), "kinds": (kinds, "text[]"),
                                              "lease_for": (lease_for, "interval")}))

    def keep(self, pause: threading.Event) -> None:
        """Renew the lease until it succeeds. Raise the error if the database refuses it."""
        for n in range(1_000_000):
            try:
                return self.renew()
            except Exception as error:
                if sqlstate(error)[:2] in REFUSED:
                    raise
                log.warning("the lease is not renewed: %s", error)
                if pause.wait(backoff(error, n)):
                    raise Ended from error

    def work(self, attempt: Attempt) -> None:
        """Claim the task, run its handler in a transaction that finishes it, or report the failure."""
        if not self._claim(attempt):
            return
        outcome = self._transact(attempt)
        for n in range(1_000_000):
            if outcome is None or attempt.is_over.is_set():
                return
            try:
                self._run(*self._end(attempt, outcome))
                return
            except Exception as error:
                code = sqlstate(error)
                if code == "TL001":
                    return  # the attempt has ended; so has one whose commit succeeded without an answer
                attempt.job.log.warning("the outcome is not recorded: %s", error)
                if code[:2] in REFUSED:
                    outcome = Outcome("fail", {"error": f"the outcome was refused: {error}"}) if n == 0 else None
                elif attempt.is_over.wait(backoff(error, n)):
                    return

    def check_time(self, attempt: Attempt) -> None:
        """Cancel the handler if its time is up. It can still finish, or fail."""
        if attempt.began and time.monotonic() - attempt.began > attempt.job.timeout:
            attempt.cancel("timeout")

    def _run(self, sql: str, values: Sequence[str]) -> list[Any]:
        """Run a statement in a transaction of its own."""
        database: Any = self._database
        if database.is_async:
            async def run() -> list[Any]:
                async with database.transaction() as connection:
                    return list(await database.rows(connection, sql, values))
            return list(self._worker.wait_for(run()))
        with database.transaction() as connection:
            return list(database.rows(connection, sql, values))

    def _claim(self, attempt: Attempt) -> bool:
        """Begin the attempt, and return whether this worker has it."""
        job = attempt.job
        arguments = {"kind": (job.kind, "text"), "biz_id": (job.biz_id, "text"), "worker": (self.name, "text")}
        for n in range(1_000_000):
            try:
                rows = self._run(*call("claim", "version, attempt, cast(args as text)", arguments))
            except Exception as error:
                code = sqlstate(error)
                if code == "TL003":
                    return False  # the kind is paused
                if code == "TL002":
                    self.renew()
                elif code[:2] in REFUSED:
                    raise
                job.log.warning("the task is not claimed: %s", error)
                if attempt.is_over.wait(backoff(error, n)):
                    return False
                arguments["resume"] = ("true", "boolean")  # the claim may have been committed without an answer
                continue
            if rows:
                job.version, job.attempt, args = rows[0]
                if not isinstance(job.args, bytes):
                    job.args = None if args is None else json.loads(args)
                attempt.began = time.monotonic()
            return bool(rows)
        return False

    def _end(self, attempt: Attempt, outcome: Outcome) -> tuple[str, list[str]]:
        """Return the call that ends an attempt."""
        job, body = attempt.job, outcome.body
        values = {"kind": (job.kind, "text"), "biz_id": (job.biz_id, "text"), "version": (str(job.version), "integer")}
        if outcome.verb == "finish":
            if "result" in body:
                values["result"] = (json.dumps(body["result"]), "json")
        elif outcome.verb == "snooze":
            values.update({"run_at": (body["at"], "timestamptz")} if "at" in body else
                          {"run_in": (f"{body['in']:.6f} seconds", "interval")})
        else:
            values["error"] = (body["error"], "text")
            values["error_type"] = (body.get("error_type", ""), "text")
            if "retry_in" in body:
                values["retry_in"] = (f"{body['retry_in']:.6f} seconds", "interval")
            if body.get("permanent"):
                values["permanent"] = ("true", "boolean")
            if "retry" in body:
                values["retry"] = (json.dumps(body["retry"]), "json")
        return call(outcome.verb, "", values)

    def _transact(self, attempt: Attempt) -> Outcome | None:
        """Run the handler and finish in one transaction. Return the outcome that is to be recorded, or None."""
        worker = self._worker
        database: Any = self._database
        try:
            if database.is_async:
                async def run() -> None:
                    async with database.transaction() as connection:
                        outcome = await worker.ainvoke(attempt, connection)
                        await database.rows(connection, *self._checked(attempt, outcome))
                worker.wait_for(run(), attempt)
            else:
                with database.transaction() as connection:
                    outcome = worker.invoke(attempt, connection)
                    database.rows(connection, *self._checked(attempt, outcome))
        except _RollBack as rolled_back:
            return rolled_back.outcome
        except BaseException as error:
            if sqlstate(error) == "TL001":
                attempt.job.log.warning("the attempt has ended; its transaction is rolled back")
                return None
            return failed(error, worker.handlers[attempt.job.kind].retry, attempt.job)
        return None

    def _checked(self, attempt: Attempt, outcome: Outcome) -> tuple[str, list[str]]:
        if outcome.verb != "finish" or attempt.is_over.is_set():
            raise _RollBack(outcome)
        return self._end(attempt, outcome)


class _RollBack(Exception):
    """Rolls the handler's transaction back."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
