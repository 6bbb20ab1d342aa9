"""The worker: it asks for tasks, runs their handlers, and reports how they end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import queue
import secrets
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from . import _telemetry
from ._exactly import AnyDatabase, Exactly
from ._finishes import Finishes
from ._http import Api, Ended, Exchange, NoAnswer, Problem, until
from ._job import Job, Outcome, failed, finished, log

Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True)
class Registered:
    """A handler, and the retry policy of tasks without their own."""

    call: Callable[..., Any]
    retry: Mapping[str, Any] | None
    is_async: bool


@dataclass(eq=False)
class Attempt:
    """A task at work."""

    job: Job
    key: str  # of Worker._work
    offer: str  # the event that made the task available
    given: dict[str, Any]  # the task as the server gave it last
    is_over: threading.Event = field(default_factory=threading.Event)  # its outcome is not reported any more
    cancel_coroutine: Callable[[], object] = field(default=lambda: None)
    began: float = 0.0

    def cancel(self, reason: str) -> None:
        self.job.cancel(reason)
        self.cancel_coroutine()

    def drop(self, reason: str) -> None:
        self.is_over.set()
        self.cancel(reason)

    def body(self, **members: Any) -> dict[str, Any]:
        return {name: self.given[name] for name in ("kind", "biz_id", "attempt", "fence")} | members


class Worker:
    """Works on tasks of the kinds for which it has handlers.

    slots is how many handlers run at a time, timeout how many seconds an attempt may take. At a shutdown, handlers have
    shutdown_timeout seconds to end; then they are cancelled, and their tasks go to other workers. With database, a
    Database of taskledger.psycopg, .asyncpg, .sqlalchemy or .django, each handler runs in a transaction that also
    finishes the task: exactly once.
    """

    def __init__(self, url: str, token: str | None = None, *, name: str | None = None, slots: int = 10,
                 timeout: float = 900.0, guarantee: Literal["at least once", "at most once"] = "at least once",
                 database: AnyDatabase | None = None, shutdown_timeout: float = 20.0, wait: float = 20.0,
                 tls: ssl.SSLContext | None = None) -> None:
        if slots < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        if database is not None and guarantee != "at least once":
            raise ValueError("guarantee must not be set together with database, which means exactly once")
        self.name, self.session = name or f"{socket.gethostname()}-{os.getpid()}", secrets.token_hex(16)
        self.slots, self.timeout, self.wait, self.shutdown_timeout = slots, timeout, wait, shutdown_timeout
        self.guarantee: str = guarantee if database is None else "exactly once"
        self.handlers: dict[str, Registered] = {}
        self._database, self._exactly = database, None if database is None else Exactly(self, database)
        self._api = Api(url, token, tls=tls)
        self._poll, self._queue = Exchange(self._api), queue.SimpleQueue[Attempt | None]()
        self._work: dict[str, Attempt] = {}  # by key
        self._unsent: dict[str, Outcome] = {}  # by offer, until they are recorded, and the last ones that were refused
        self._every, self._running = 10.0, 0  # handlers: the outcomes of the others are on their way
        self._stopping, self._answered, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._changed, self._finishes = threading.Condition(), Finishes(self._api, self._ended.wait)
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def handle(self, kind: str, *, retry: Mapping[str, Any] | None = None) -> Callable[[Handler], Handler]:
        """Register the decorated function, or coroutine function, as the handler of a kind.

        It gets the Job, and with database the connection. Its result is the task's. retry is the policy of tasks
        without their own.
        """
        def register(handler: Handler) -> Handler:
            is_async = inspect.iscoroutinefunction(handler)
            if kind in self.handlers:
                raise ValueError(f"kind {kind} has two handlers")
            if self._database is not None and self._database.is_async != is_async:
                raise TypeError(f"the handler of {kind} must {'' if self._database.is_async else 'not '}be a "
                                "coroutine function, as the database's connections")
            self.handlers[kind] = Registered(handler, retry, is_async)
            return handler
        return register

    def run(self) -> None:
        """Work until SIGTERM, SIGINT or stop. Handlers run in threads, and coroutines in one event loop.

        Raise Problem if the server refuses the worker: its token, a kind, the guarantee.
        """
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """Like run, in the caller's event loop. If it is cancelled, it returns after a graceful shutdown."""
        self._loop = loop = asyncio.get_running_loop()
        signals = [signal.SIGTERM, signal.SIGINT] if threading.current_thread() is threading.main_thread() else []

        def release_signals() -> None:
            while signals:
                loop.remove_signal_handler(signals.pop())

        def on_signal() -> None:
            release_signals()  # a second one ends the process
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # KeyboardInterrupt would wait for the handlers
            self.stop()
        with contextlib.suppress(NotImplementedError):  # on Windows, SIGINT cancels run
            for number in signals:
                loop.add_signal_handler(number, on_signal)
        done = asyncio.Event()

        def core() -> None:
            self._run()
            loop.call_soon_threadsafe(done.set)
        threading.Thread(target=core, name="taskledger").start()
        try:
            await done.wait()
        except asyncio.CancelledError:
            self.stop()
            await done.wait()
            raise
        finally:
            with contextlib.suppress(NotImplementedError):
                release_signals()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Begin a graceful shutdown, at whose end run and serve return. Safe for concurrent use."""
        self._stopping.set()
        self._poll.abort()
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            if not 1 <= len(self.handlers) <= 100:
                raise ValueError(f"a worker needs handlers of 1 to 100 kinds, got {len(self.handlers)}")
            if self._exactly is not None:
                self._exactly.keep(self._stopping)
            for target in [self._heartbeats, self._finishes.run] + [self._slot] * self.slots:
                threading.Thread(target=target, daemon=True).start()
            self._ask()
        except BaseException as error:
            self._fail(error)
        self._shut_down()

    def _fail(self, error: BaseException) -> None:
        """Stop the worker with an error, which run raises."""
        if isinstance(error, Ended):
            return  # of a call that nobody waits for any more
        if self._error is None:
            self._error = error
            log.error("the worker %s stops: %s", self.name, error)
        self.stop()

    def _ask(self) -> None:
        received, warn = "", functools.cache(functools.partial(log.warning, "%s"))  # once each
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._free() > 0 or self._stopping.is_set())
                free = self._free()
            if self._stopping.is_set():
                return
            answer = self._api.repeat("POST", "/v1/work", {
                "worker": self.name if self._exactly is None else self._exactly.name, "session": self.session,
                "kinds": list(self.handlers), "guarantee": self.guarantee, "limit": min(free, 100), "wait": self.wait,
                "received": received, "timeout": self.timeout, "protocol": "1.0",
            }, pause=self._stopping.wait, timeout=self.wait + 15, exchange=self._poll)
            received, self._every = answer["batch"], float(answer["heartbeat_every"])
            self._answered.set()
            for unknown in answer.get("unknown_kinds", ()):
                warn(unknown["detail"])
            for task in answer["tasks"]:
                self._begin(task)

    def _free(self) -> int:
        return min(self.slots - self._running, 4 * self.slots - len(self._work))

    def _begin(self, task: dict[str, Any]) -> None:
        key = offer = f"{task['version']} {task['available_at']} {task['kind']}/{task['biz_id']}"
        task.setdefault("fence", key)  # missing if the worker claims the task in SQL
        with self._changed:
            while (same := self._work.get(key)) is not None:
                if not same.is_over.is_set():
                    same.given = task  # again, perhaps by another process of serve
                    return
                key = "/" + key  # its handler may still run
            attempt = self._work[key] = Attempt(Job.of(task), key, offer, task)
            self._running += 1
        if self._exactly is None:
            attempt.job.report = functools.partial(self._progress, attempt, [0.0])
        self._queue.put(attempt)

    def _slot(self) -> None:
        while (attempt := self._queue.get()) is not None:
            is_finished = False
            try:
                if self._exactly is not None:
                    self._exactly.work(attempt)
                elif not attempt.is_over.is_set():
                    is_finished = self._report(attempt, self._unsent.get(attempt.offer) or self.invoke(attempt))
            except BaseException as error:
                self._fail(error)
            with self._changed:
                self._running -= 1
                if not is_finished:
                    self._work.pop(attempt.key, None)
                self._changed.notify_all()

    def invoke(self, attempt: Attempt, *arguments: Any) -> Outcome:
        """Run the handler of a job in this thread, or in the event loop."""
        registered = self.handlers[attempt.job.kind]
        if registered.is_async:
            outcome: Outcome = self.wait_for(self.ainvoke(attempt, *arguments), attempt)
            return outcome
        try:
            with _telemetry.attempt(attempt.job):
                return finished(registered.call(attempt.job, *arguments))
        except BaseException as error:
            return failed(error, registered.retry, attempt.job)

    async def ainvoke(self, attempt: Attempt, *arguments: Any) -> Outcome:
        registered = self.handlers[attempt.job.kind]
        try:
            with _telemetry.attempt(attempt.job):
                return finished(await registered.call(attempt.job, *arguments))
        except BaseException as error:
            return failed(error, registered.retry, attempt.job)

    def wait_for(self, coroutine: Coroutine[Any, Any, Any], attempt: Attempt | None = None) -> Any:
        """Run a coroutine in the event loop, and wait until it has ended, even if the attempt cancels it."""
        assert self._loop is not None
        loop, result = self._loop, queue.SimpleQueue[tuple[Any, BaseException | None]]()

        async def whole() -> None:
            task = asyncio.ensure_future(coroutine)
            if attempt is not None:
                attempt.cancel_coroutine = functools.partial(loop.call_soon_threadsafe, task.cancel)
                if attempt.job.cancelled.is_set():
                    task.cancel()
            try:
                result.put((await task, None))
            except BaseException as error:
                result.put((None, error))
        asyncio.run_coroutine_threadsafe(whole(), loop)
        value, error = result.get()
        if error is not None:
            raise error
        return value

    def _report(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Report an outcome until the server has answered, or the attempt is over. A success goes on its way: True."""
        if attempt.is_over.is_set():
            return False
        with self._changed:
            self._unsent[attempt.offer] = outcome  # if the offer comes again, it is not begun again
            if len(self._unsent) > 8 * self.slots:
                del self._unsent[next(iter(self._unsent))]
        body = attempt.body(**outcome.body)
        if outcome.verb == "finish":
            self._finishes.add(body, functools.partial(self._finished, attempt, outcome, body))
            return True
        try:
            self._api.repeat("POST", "/v1/work:" + outcome.verb, body, pause=attempt.is_over.wait)
        except Problem as problem:
            return self._refused(attempt, outcome, body, problem)
        with self._changed:
            self._unsent.pop(attempt.offer, None)
        return False

    def _finished(self, attempt: Attempt, outcome: Outcome, body: dict[str, Any], error: Exception | None) -> None:
        """End an attempt whose success the server has answered."""
        try:
            if isinstance(error, Problem) and self._refused(attempt, outcome, body, error):
                return
        except BaseException as failure:
            self._fail(failure)
        with self._changed:
            if error is None:
                self._unsent.pop(attempt.offer, None)
            self._work.pop(attempt.key, None)
            self._changed.notify_all()

    def _refused(self, attempt: Attempt, outcome: Outcome, body: dict[str, Any], problem: Problem) -> bool:
        """Report what is left to report after a refusal, like _report."""
        if attempt.is_over.is_set():
            return False
        if problem.code == "attempt_ended" and body["fence"] != attempt.given["fence"]:
            return self._report(attempt, outcome)  # under the newer fence
        if problem.code == "attempt_ended":
            attempt.job.log.warning("the outcome is not recorded: %s", problem)
        elif problem.status in (400, 413) and outcome.verb != "fail":
            attempt.job.log.warning("the server refuses the outcome: %s", problem)
            error = f"{outcome.verb} was refused: {problem}"
            self._report(attempt, Outcome("fail", {"error": error, "error_type": "Problem"}))
        else:
            raise problem
        return False

    def _progress(self, attempt: Attempt, last: list[float], value: Any) -> None:
        attempt.job.check()
        if last[0] and time.monotonic() - last[0] < 1:
            return  # the server would not record it
        last[0] = time.monotonic()
        body = attempt.body(progress=value)
        try:
            self._api.once("POST", "/v1/work:progress", body)
        except NoAnswer as error:
            attempt.job.log.debug("progress is not recorded: %s", error)
        except Problem as problem:
            if body["fence"] != attempt.given["fence"]:
                return  # the next report is of the newer attempt
            if problem.code == "attempt_ended":
                attempt.drop("fenced")
                attempt.job.check()
            if not problem.is_temporary:
                raise

    def _heartbeats(self) -> None:
        if self._exactly is None:
            self._answered.wait()  # the answer has the interval
        while not self._ended.wait(self._every):
            try:
                self._beat()
            except BaseException as error:
                self._fail(error)

    def _beat(self) -> None:
        with self._changed:
            holds = {a.given["fence"]: a for a in self._work.values() if not a.is_over.is_set()}
        if self._exactly is not None:
            self._exactly.keep(self._ended)
            for attempt in holds.values():
                self._exactly.check_time(attempt)
        elif holds:
            answer = self._api.repeat("POST", "/v1/work:heartbeat", {"session": self.session, "holds": list(holds)},
                                      pause=self._ended.wait, timeout=10.0)
            self._every = float(answer["heartbeat_every"])
            for ended in answer["ended"]:
                for over in (a for a in holds.values() if a.given["fence"] == ended["fence"]):
                    over.job.log.warning("the attempt is over: %s", ended["reason"])
                    over.drop(ended["reason"])

    def _shut_down(self) -> None:
        if self._work:
            log.info("%s stops: it waits up to %g s for %d tasks", self.name, self.shutdown_timeout, len(self._work))
        with self._changed:
            self._changed.wait_for(lambda: not self._work, self.shutdown_timeout)
            left = list(self._work.values())
        holds = [attempt.given["fence"] for attempt in left if not attempt.is_over.is_set()]
        for attempt in left:
            attempt.job.log.warning("the attempt is over: shutdown")
            attempt.drop("shutdown")
        with self._changed:
            self._changed.wait_for(lambda: not self._work, 1.0 if left else 0.0)
        self._ended.set()
        self._answered.set()
        self._finishes.close()
        for _ in range(self.slots):
            self._queue.put(None)
        patience = time.monotonic() + 5
        try:
            if self._exactly is not None:
                self._exactly.renew("0 seconds")
            # Those that another process of serve has given, and then the session.
            for held in [{"holds": holds}] * bool(holds and self._exactly is None) + [{}]:
                self._api.repeat("POST", "/v1/work:release", {"session": self.session, **held}, timeout=5.0,
                                 pause=until(patience))
        except Exception as error:
            log.warning("tasks are not given back, and go to other workers later: %s", error)
