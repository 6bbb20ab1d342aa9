"""Workers over HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import taskledger
from taskledger import Job

from .base import PATIENCE, TOKEN, URL, Case, until

FAST = {"ladder": [0, 0, 0]}


class TestWorker(Case):
    def test_results_in_threads_and_coroutines(self) -> None:
        worker = self.worker(slots=3)
        barrier = threading.Barrier(3)

        @worker.handle(self.kind)
        def in_a_thread(job: Job) -> Any:
            barrier.wait(PATIENCE)  # three at a time
            return {"args": job.args, "attempt": job.attempt}

        @worker.handle(self.kind + ".a")
        async def in_a_coroutine(job: Job) -> Any:
            await asyncio.sleep(0)
            return [job.biz_id]
        with self.running(worker):
            for id_ in ("1", "2", "3"):
                self.client.enqueue(self.kind, id_, {"ä": id_})
            self.client.enqueue(self.kind + ".a", "é/1")
            self.assertEqual(self.client.wait(self.kind, "2", PATIENCE), {"args": {"ä": "2"}, "attempt": 1})
            self.assertEqual(self.client.wait(self.kind + ".a", "é/1", PATIENCE), ["é/1"])

    def test_failures(self) -> None:
        worker = self.worker()
        snoozed: set[str] = set()

        @worker.handle(self.kind, retry=FAST)
        def handler(job: Job) -> Any:
            if job.biz_id == "error" and job.attempt < 3:
                raise KeyError(f"attempt {job.attempt}")
            if job.biz_id == "permanent":
                raise taskledger.Permanent("never") from ValueError("bad")
            if job.biz_id == "retry" and job.attempt == 1:
                raise taskledger.Retry("soon", retry_in=0.01)
            if job.biz_id == "snooze" and job.biz_id not in snoozed:
                snoozed.add(job.biz_id)
                raise taskledger.Snooze(0.01)
            if job.biz_id == "result":
                return object()
            if job.biz_id == "large":
                return "x" * 300_000
            return job.attempt
        with self.running(worker):
            for id_ in ("error", "permanent", "retry", "snooze"):
                self.client.enqueue(self.kind, id_)
            for id_ in ("result", "large"):
                self.client.enqueue(self.kind, id_, retry={"ladder": [0]})
            self.assertEqual(self.client.wait(self.kind, "error", PATIENCE), 3)
            self.assertEqual(self.client.wait(self.kind, "retry", PATIENCE), 2)
            self.client.wait(self.kind, "snooze", PATIENCE)
            for id_, text in {"permanent": "never", "result": "not JSON", "large": "262144|256 KiB|too_large"}.items():
                with self.assertRaisesRegex(taskledger.TaskFailed, text):
                    self.client.wait(self.kind, id_, PATIENCE)
        self.assertEqual(self.data("error", "failed")["error"]["type"], "KeyError")
        self.assertEqual(self.data("permanent", "failed")["error"]["type"], "ValueError")
        self.assertIn("snoozed", self.history("snooze"))
        self.assertNotIn("failed", self.history("snooze"))

    def test_kind_that_never_had_a_task_is_logged_once(self) -> None:
        self.client.enqueue(self.kind, "A")
        worker = self.worker(wait=0.1)
        other = self.kind + "x"
        for kind in (self.kind, other):
            worker.handle(kind)(lambda job: job.kind)
        with self.assertLogs("taskledger", logging.WARNING) as logs:
            with self.running(worker):
                until("a warning", lambda: logs.records)
                time.sleep(0.5)
                self.client.enqueue(other, "A")
                self.assertEqual(self.client.wait(other, "A", PATIENCE), other)
        self.assertEqual([record.getMessage() for record in logs.records],
                         [f"no task of kind {other} has been enqueued yet; did you mean {self.kind}?"])

    def test_odd_errors_fail_their_tasks(self) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise ValueError("no text")
        odd: dict[str, Callable[[], Exception]] = {
            "text": Odd, "zone": lambda: taskledger.Snooze(datetime(2030, 1, 1)),
            "nan": lambda: taskledger.Retry("x", retry_in=float("nan"))}
        worker = self.worker()

        @worker.handle(self.kind)
        def handler(job: Job) -> Any:
            raise odd[job.biz_id]()
        with self.running(worker):
            for id_ in odd:
                self.client.enqueue(self.kind, id_, None, retry={"ladder": [0]})
            for id_ in odd:
                with self.assertRaises(taskledger.TaskFailed):
                    self.client.wait(self.kind, id_, PATIENCE)

    def test_progress(self) -> None:
        worker, reported = self.worker(), threading.Event()

        @worker.handle(self.kind)
        def handler(job: Job) -> None:
            job.progress({"done": 7})
            reported.wait(PATIENCE)
        with self.running(worker):
            self.client.enqueue(self.kind, "A")
            until("progress", lambda: self.data("A", "progressed"))
            reported.set()
            self.client.wait(self.kind, "A", PATIENCE)

    def test_cancelled_while_it_runs(self) -> None:
        worker = self.worker()
        begun, ended = threading.Semaphore(0), {}

        @worker.handle(self.kind)
        def in_a_thread(job: Job) -> None:
            begun.release()
            job.cancelled.wait(PATIENCE)
            ended["thread"] = job.reason
            job.check()

        @worker.handle(self.kind + ".a")
        async def in_a_coroutine(job: Job) -> None:
            begun.release()
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                ended["coroutine"] = job.reason
                raise
        with self.running(worker):
            for kind in (self.kind, self.kind + ".a"):
                self.client.enqueue(kind, "A")
            for _ in range(2):
                self.assertTrue(begun.acquire(timeout=PATIENCE))
            for kind in (self.kind, self.kind + ".a"):
                self.client._api.once("POST", f"/v1/tasks/{kind}/A:cancel")
            until("the end of both handlers", lambda: len(ended) == 2)
        self.assertEqual(ended, {"thread": "cancelled", "coroutine": "cancelled"})
        self.assertEqual(self.history("A")[-1], "cancelled")

    def test_time_out(self) -> None:
        worker = self.worker(timeout=1.0)

        @worker.handle(self.kind, retry={"ladder": []})
        def handler(job: Job) -> None:
            job.cancelled.wait(PATIENCE)
        with self.running(worker):
            self.client.enqueue(self.kind, "A", retry={"ladder": [], "attempts": 1})
            with self.assertRaises(taskledger.TaskFailed):
                self.client.wait(self.kind, "A", PATIENCE)

    def test_at_most_once(self) -> None:
        worker = self.worker(guarantee="at most once")

        @worker.handle(self.kind)
        def handler(job: Job) -> int:
            if job.biz_id == "unsafe":
                raise OSError("the answer was lost")
            if job.attempt == 1:
                raise taskledger.Retry("nothing has happened", retry_in=0, safe=True)
            return job.attempt
        with self.running(worker):
            self.client.enqueue(self.kind, "unsafe")
            self.client.enqueue(self.kind, "safe")
            self.assertEqual(self.client.wait(self.kind, "safe", PATIENCE), 2)
            with self.assertRaisesRegex(taskledger.TaskFailed, "the answer was lost"):
                self.client.wait(self.kind, "unsafe", PATIENCE)

    def test_refused(self) -> None:
        worker = taskledger.Worker(URL, "tlk_invalid")
        worker.handle(self.kind)(lambda job: None)
        with self.assertRaises(taskledger.Problem) as refused:
            worker.run()
        self.assertEqual(refused.exception.status, 401)
        with self.assertRaisesRegex(ValueError, "1 to 100 kinds, got 0"):
            taskledger.Worker(URL, TOKEN).run()
        with self.assertRaisesRegex(ValueError, "slots must be at least 1, got 0"):
            taskledger.Worker(URL, TOKEN, slots=0)
        with self.assertRaisesRegex(ValueError, "two handlers"):
            worker.handle(self.kind)(lambda job: None)

    def test_shutdown_gives_back_what_has_not_ended(self) -> None:
        slow, quick = self.worker(shutdown_timeout=0.2), self.worker()
        begun, reason = threading.Event(), []

        @slow.handle(self.kind)
        def waits(job: Job) -> None:
            begun.set()
            job.cancelled.wait(PATIENCE)
            reason.append(job.reason)

        @quick.handle(self.kind)
        def at_once(job: Job) -> int:
            return job.attempt
        with self.running(slow):
            self.client.enqueue(self.kind, "A")
            self.assertTrue(begun.wait(PATIENCE))
        with self.running(quick):
            self.assertEqual(self.client.wait(self.kind, "A", PATIENCE), 2)
        self.assertEqual(reason, ["shutdown"])
        self.assertEqual(self.data("A", "interrupted")["reason"], "shutdown")

    def test_sigterm(self) -> None:
        program = f"""
import taskledger, time
worker = taskledger.Worker({URL!r}, {TOKEN!r})
@worker.handle({self.kind!r})
def handler(job):
    print("begun", flush=True)
    time.sleep(1)
    return "done"
worker.run()
print("stopped")
"""
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                              env=os.environ) as process:
            self.client.enqueue(self.kind, "A")
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), "begun\n")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.stdout.read(), "stopped\n")
        self.assertEqual(process.returncode, 0)
        self.assertEqual(self.client.wait(self.kind, "A", 1), "done")

    def test_second_interrupt_ends_the_process(self) -> None:
        program = f"""
import logging, taskledger, time
logging.basicConfig(format="%(message)s", level=logging.INFO)
worker = taskledger.Worker({URL!r}, {TOKEN!r}, shutdown_timeout=3600)
@worker.handle({self.kind!r})
def handler(job):
    job.log.info("begun")
    time.sleep(3600)
worker.run()
"""
        with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
            self.addCleanup(process.kill)
            self.client.enqueue(self.kind, "A")
            assert process.stderr is not None
            self.assertEqual(process.stderr.readline(), f"{self.kind}/A #1: begun\n")
            process.send_signal(signal.SIGINT)
            self.assertIn("waits up to 3600 s for 1 tasks", process.stderr.readline())
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(PATIENCE), -signal.SIGINT)

    def test_serve_in_an_event_loop(self) -> None:
        async def program() -> Any:
            worker, client = self.worker(), taskledger.AsyncClient(URL, TOKEN)
            loop = asyncio.get_running_loop()

            @worker.handle(self.kind)
            async def handler(job: Job) -> bool:
                return asyncio.get_running_loop() is loop
            serving = asyncio.create_task(worker.serve())
            await client.enqueue(self.kind, "A")
            result = await client.wait(self.kind, "A", PATIENCE)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            return result
        self.assertIs(asyncio.run(program()), True)

    def test_log_and_trace(self) -> None:
        worker = self.worker()
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        records: list[logging.LogRecord] = []

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                records.append(record)
        output = Handler()
        output.addFilter(taskledger.JobFilter())
        logger = logging.getLogger("shop")
        logger.addHandler(output)
        self.addCleanup(logger.removeHandler, output)

        @worker.handle(self.kind)
        def handler(job: Job) -> str | None:
            logger.warning("careful")
            if job.biz_id == "A":
                self.client.enqueue(self.kind, "child")
            return job.traceparent
        with self.running(worker):
            self.client._api.once("POST", "/v1/tasks", {"kind": self.kind, "biz_id": "A"},
                                  headers={"traceparent": trace})
            self.assertEqual(self.client.wait(self.kind, "A", PATIENCE), trace)
            self.assertEqual(self.client.wait(self.kind, "child", PATIENCE), trace)
        self.assertEqual(records[0].__dict__["task"], self.kind + "/A")
