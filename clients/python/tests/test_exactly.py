"""Exactly once: the effect and the outcome in one transaction, by each driver."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncpg
import psycopg
import psycopg_pool
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

import taskledger
import taskledger.asyncpg
import taskledger.django
import taskledger.psycopg
import taskledger.sqlalchemy
from taskledger import Job
from taskledger._exactly import sqlstate

from .base import DATABASE, PATIENCE, TOKEN, URL, Case
from .test_enqueue import ASYNCPG, set_up_django

INSERT = "insert into py_effect (kind, biz_id) values ('{}', '{}')"


class TestExactly(Case):
    def setUp(self) -> None:
        super().setUp()
        self.db.execute("create table if not exists py_effect (kind text, biz_id text)")

    def sql(self, job: Job) -> str:
        return INSERT.format(job.kind, job.biz_id)

    def outcome(self, job: Job) -> Any:
        """Fail after the effect at first, and be dead or succeed."""
        if job.biz_id == "dead":
            raise taskledger.Permanent("never")
        if job.attempt == 1:
            raise taskledger.Retry("once more", retry_in=0)
        return job.args

    def check(self, database: Any, handler: Any) -> None:
        worker = self.worker(database=database)
        worker.handle(self.kind)(handler)
        with self.running(worker):
            self.client.enqueue(self.kind, "A", {"cents": 5})
            self.client.enqueue(self.kind, "dead")
            self.assertEqual(self.client.wait(self.kind, "A", PATIENCE), {"cents": 5})
            with self.assertRaisesRegex(taskledger.TaskFailed, "never"):
                self.client.wait(self.kind, "dead", PATIENCE)
        self.assertEqual(self.history("A"), ["enqueued", "started", "failed", "released", "started", "succeeded"])
        effects = self.db.execute("select biz_id from py_effect where kind = %s", (self.kind,)).fetchall()
        self.assertEqual(effects, [("A",)])

    def sync(self, job: Job, connection: Any) -> Any:
        connection.execute(self.sql(job))
        return self.outcome(job)

    async def coroutine(self, job: Job, connection: Any) -> Any:
        await connection.execute(self.sql(job))
        return self.outcome(job)

    def test_psycopg(self) -> None:
        with psycopg_pool.ConnectionPool(DATABASE, min_size=1, max_size=6) as pool:
            self.check(taskledger.psycopg.Database(pool), self.sync)

    def test_psycopg_address(self) -> None:
        self.check(taskledger.psycopg.Database(DATABASE), self.sync)

    def test_psycopg_async(self) -> None:
        self.check(taskledger.psycopg.AsyncDatabase(DATABASE), self.coroutine)

    def test_sqlalchemy(self) -> None:
        engine = sqlalchemy.create_engine(re.sub("^postgres:", "postgresql:", DATABASE))
        self.check(taskledger.sqlalchemy.Database(engine),
                   lambda job, c: (c.execute(sqlalchemy.text(self.sql(job))), self.outcome(job))[1])
        engine.dispose()

    def test_sqlalchemy_async(self) -> None:
        async def handler(job: Job, connection: Any) -> Any:
            await connection.execute(sqlalchemy.text(self.sql(job)))
            return self.outcome(job)
        self.check(taskledger.sqlalchemy.AsyncDatabase(create_async_engine(ASYNCPG, poolclass=NullPool)), handler)

    def test_django(self) -> None:
        set_up_django()

        def handler(job: Job, connection: Any) -> Any:
            with connection.cursor() as cursor:
                cursor.execute(self.sql(job))
            return self.outcome(job)
        self.check(taskledger.django.Database(), handler)

    def test_asyncpg(self) -> None:
        async def program() -> None:
            async with asyncpg.create_pool(DATABASE, min_size=1, max_size=6) as pool:
                worker = self.worker(database=taskledger.asyncpg.Database(pool))
                worker.handle(self.kind)(self.coroutine)
                client, serving = taskledger.AsyncClient(URL, TOKEN), asyncio.create_task(worker.serve())
                await client.enqueue(self.kind, "A", {"cents": 5})
                self.assertEqual(await client.wait(self.kind, "A", PATIENCE), {"cents": 5})
                worker.stop()
                await serving
        asyncio.run(program())
        self.assertEqual(self.db.execute("select biz_id from py_effect where kind = %s", (self.kind,)).fetchall(),
                         [("A",)])

    def test_a_lost_attempt_rolls_back(self) -> None:
        """Another process ends the attempt while the handler runs: its effect is not committed."""
        def handler(job: Job, connection: Any) -> None:
            connection.execute(self.sql(job))
            with psycopg.connect(DATABASE, autocommit=True) as other:
                other.execute("select taskledger.fail(%s, %s, %s, 'taken', permanent => true)",
                              (job.kind, job.biz_id, job.version))
        worker = self.worker(database=taskledger.psycopg.Database(DATABASE))
        worker.handle(self.kind)(handler)
        with self.running(worker):
            self.client.enqueue(self.kind, "A")
            with self.assertRaisesRegex(taskledger.TaskFailed, "taken"):
                self.client.wait(self.kind, "A", PATIENCE)
        self.assertEqual(self.db.execute("select 1 from py_effect where kind = %s", (self.kind,)).fetchall(), [])

    def test_sqlstate_of_each_driver(self) -> None:
        sql, values = "select cast(taskledger.finish('a', cast($1 as text), 1) as text)", ["b"]
        set_up_django()
        engine = sqlalchemy.create_engine(re.sub("^postgres:", "postgresql:", DATABASE))
        for database in (taskledger.psycopg.Database(DATABASE), taskledger.sqlalchemy.Database(engine),
                         taskledger.django.Database()):
            with self.subTest(database), self.assertRaises(Exception) as raised, database.transaction() as connection:
                database.rows(connection, sql, values)
            self.assertEqual(sqlstate(raised.exception), "TL001")
        engine.dispose()

        async def rows(database: Any) -> str:
            try:
                async with database.transaction() as connection:
                    await database.rows(connection, sql, values)
            except Exception as error:
                return sqlstate(error)
            return "no error"

        async def program() -> None:
            async with asyncpg.create_pool(DATABASE, min_size=1, max_size=2) as pool:
                databases = (taskledger.asyncpg.Database(pool), taskledger.psycopg.AsyncDatabase(DATABASE),
                             taskledger.sqlalchemy.AsyncDatabase(create_async_engine(ASYNCPG, poolclass=NullPool)))
                self.assertEqual([await rows(database) for database in databases], ["TL001"] * 3)
        asyncio.run(program())

    def test_mismatch(self) -> None:
        worker = self.worker(database=taskledger.psycopg.Database(DATABASE))
        with self.assertRaisesRegex(TypeError, "must not be a coroutine function"):
            worker.handle(self.kind)(self.coroutine)
