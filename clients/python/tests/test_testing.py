"""The test mode needs no server."""

from __future__ import annotations

import asyncio
import unittest
from typing import Any

from taskledger import Job, Permanent, Retry, Snooze, Worker, testing


class TestTesting(unittest.TestCase):
    def setUp(self) -> None:
        self.worker = Worker("http://127.0.0.1:1")

        @self.worker.handle("mail.send")
        def send(job: Job) -> Any:
            job.progress("half")
            if job.args == "permanent":
                raise Permanent("no address")
            if job.args == "retry":
                raise Retry("busy", retry_in=60)
            if job.args == "snooze":
                raise Snooze(3600)
            job.check()
            return {"attempt": job.attempt}

        @self.worker.handle("mail.read")
        async def read(job: Job) -> Any:
            await asyncio.sleep(0)
            return job.args

    def test_outcomes(self) -> None:
        done = testing.run(self.worker, "mail.send", "1", attempt=2)
        self.assertEqual((done.outcome, done.result, done.progress), ("finished", {"attempt": 2}, ["half"]))
        dead = testing.run(self.worker, "mail.send", "1", "permanent")
        self.assertEqual((dead.outcome, str(dead.error)), ("dead", "no address"))
        failed = testing.run(self.worker, "mail.send", "1", "retry")
        self.assertEqual((failed.outcome, failed.retry_in), ("failed", 60))
        self.assertEqual(testing.run(self.worker, "mail.send", "1", "snooze").snoozed, 3600)
        self.assertEqual(testing.run(self.worker, "mail.send", "1", cancelled="timeout").outcome, "failed")
        self.assertEqual(testing.run(self.worker, "mail.read", "1", [1]).result, [1])
        with self.assertRaisesRegex(ValueError, "no handler of mail.sent"):
            testing.run(self.worker, "mail.sent", "1")

    def test_database(self) -> None:
        class Database:
            is_async = False
        worker = Worker("http://127.0.0.1:1", database=Database())  # type: ignore[arg-type]
        worker.handle("mail.send")(lambda job, connection: connection)
        self.assertEqual(testing.run(worker, "mail.send", "1", connection="c").result, "c")
        with self.assertRaisesRegex(ValueError, "connection=db"):
            testing.run(worker, "mail.send", "1")
