"""A real taskledger serve, of which the caller has set the addresses: `make clients` does."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import unittest
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import psycopg

import taskledger

URL, TOKEN, DATABASE = (os.environ[n] for n in ("TASKLEDGER_URL", "TASKLEDGER_TOKEN", "DATABASE_URL"))
PATIENCE = 120.0
logging.getLogger("taskledger").setLevel(logging.CRITICAL)  # handlers fail on purpose


def until(what: str, condition: Callable[[], Any]) -> Any:
    """Return the first value of condition that is true."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen")
        time.sleep(0.02)
    return value


class Case(unittest.TestCase):
    """A test with a kind of its own."""

    def setUp(self) -> None:
        self.kind = "py." + self.id().rsplit(".", 1)[1].replace("_", "-") + "-" + secrets.token_hex(4)
        self.client = taskledger.Client(URL, TOKEN)
        self.db = psycopg.connect(DATABASE, autocommit=True)
        self.addCleanup(self.db.close)

    def history(self, biz_id: str) -> list[str]:
        rows = self.db.execute("select type::text from taskledger.event where kind = %s and biz_id = %s"
                               " order by version", (self.kind, biz_id))
        return [row[0] for row in rows]

    def data(self, biz_id: str, type_: str) -> Any:
        """The data of the last event of a type."""
        row = self.db.execute("select data from taskledger.event where kind = %s and biz_id = %s and type::text = %s"
                              " order by version desc limit 1", (self.kind, biz_id, type_)).fetchone()
        return row and row[0]

    def worker(self, **options: Any) -> taskledger.Worker:
        return taskledger.Worker(URL, TOKEN, **{"slots": 4, "shutdown_timeout": 10.0, **options})

    @contextmanager
    def running(self, worker: taskledger.Worker) -> Any:
        """Run a worker in a thread, and stop it gracefully."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:
                errors.append(error)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield errors
        finally:
            worker.stop()
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive(), "the worker has not stopped")
