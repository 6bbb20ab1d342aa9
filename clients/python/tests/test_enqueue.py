"""Enqueue in the caller's transaction, by each driver."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta, timezone
import asyncpg
import django
import psycopg.conninfo
import psycopg.rows
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import taskledger
import taskledger.asyncpg
import taskledger.django
import taskledger.psycopg
import taskledger.sqlalchemy

from .base import DATABASE, Case

ASYNCPG = re.sub("^postgres(ql)?:", "postgresql+asyncpg:", DATABASE).replace("sslmode=", "ssl=")


def set_up_django() -> None:
    from django.conf import settings
    if settings.configured:
        return
    p = psycopg.conninfo.conninfo_to_dict(DATABASE)
    settings.configure(USE_TZ=True, DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": p["dbname"], "USER": p["user"],
        "PASSWORD": p.get("password", ""), "HOST": p["host"], "PORT": p["port"]}})
    django.setup()


class TestEnqueue(Case):
    def assert_atomic(self, id_: str) -> None:
        """The committed task exists once, and the one that was rolled back does not."""
        self.assertEqual(self.history(id_), ["enqueued"])
        self.assertEqual(self.data(id_, "enqueued"), {"cents": 500, "text": "ä%s:p1$1"})
        self.assertEqual(self.history("rolled back"), [])

    args = {"cents": 500, "text": "ä%s:p1$1"}

    def test_psycopg(self) -> None:
        with psycopg.connect(DATABASE, row_factory=psycopg.rows.dict_row) as connection:
            task = taskledger.psycopg.enqueue(connection, self.kind, "A-1", self.args)
            self.assertEqual((task.is_new, task.state, task.version, task.same_args), (True, "available", 1, True))
            self.assertEqual(self.history("A-1"), [])
            connection.commit()
            self.assertFalse(taskledger.psycopg.enqueue(connection, self.kind, "A-1", self.args).is_new)
            with self.assertRaisesRegex(taskledger.OtherArgs, "A-1 exists with other args, and is available"):
                taskledger.psycopg.enqueue(connection, self.kind, "A-1", {"cents": 600})
            taskledger.psycopg.enqueue(connection, self.kind, "rolled back")
            connection.rollback()
        self.assert_atomic("A-1")

    def test_psycopg_async(self) -> None:
        async def enqueue() -> None:
            async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
                await taskledger.psycopg.aenqueue(connection, self.kind, "A-1", self.args)
                await connection.commit()
                await taskledger.psycopg.aenqueue(connection, self.kind, "rolled back")
                await connection.rollback()
        asyncio.run(enqueue())
        self.assert_atomic("A-1")

    def test_asyncpg(self) -> None:
        async def enqueue() -> None:
            connection = await asyncpg.connect(DATABASE)
            async with connection.transaction():
                task = await taskledger.asyncpg.enqueue(connection, self.kind, "A-1", self.args)
                self.assertEqual((task.is_new, task.state), (True, "available"))
            transaction = connection.transaction()
            await transaction.start()
            await taskledger.asyncpg.enqueue(connection, self.kind, "rolled back")
            await transaction.rollback()
            await connection.close()
        asyncio.run(enqueue())
        self.assert_atomic("A-1")

    def test_django(self) -> None:
        set_up_django()
        from django.db import transaction
        with self.assertRaisesRegex(RuntimeError, "transaction.atomic"):
            taskledger.django.enqueue(self.kind, "alone")
        with transaction.atomic():
            taskledger.django.enqueue(self.kind, "A-1", self.args)
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            taskledger.django.enqueue(self.kind, "rolled back")
            raise ZeroDivisionError
        self.assert_atomic("A-1")

    def test_sqlalchemy(self) -> None:
        engine = sqlalchemy.create_engine(re.sub("^postgres:", "postgresql:", DATABASE))
        with engine.begin() as connection:
            taskledger.sqlalchemy.enqueue(connection, self.kind, "A-1", self.args)
        with Session(engine) as session:
            self.assertFalse(taskledger.sqlalchemy.enqueue(session, self.kind, "A-1", self.args).is_new)
            taskledger.sqlalchemy.enqueue(session, self.kind, "rolled back")
            session.rollback()
        engine.dispose()
        self.assert_atomic("A-1")

    def test_sqlalchemy_async(self) -> None:
        async def enqueue() -> None:
            engine = create_async_engine(ASYNCPG)
            async with engine.begin() as connection:
                await taskledger.sqlalchemy.aenqueue(connection, self.kind, "A-1", self.args)
            async with AsyncSession(engine) as session:
                await taskledger.sqlalchemy.aenqueue(session, self.kind, "rolled back")
                await session.rollback()
            await engine.dispose()
        asyncio.run(enqueue())
        self.assert_atomic("A-1")

    def test_archived(self) -> None:
        """A task that was archived before the tests is returned as an existing one."""
        want = taskledger.Enqueued(False, "succeeded", 3, True, 0, True)
        key = "archived.order", "A-1", {"cents": 1}
        with psycopg.connect(DATABASE) as connection:
            self.assertEqual(taskledger.psycopg.enqueue(connection, *key, check_archive=True), want)
            self.assertFalse(taskledger.psycopg.enqueue(connection, self.kind, "new", check_archive=True).archived)
        self.assertEqual(self.client.enqueue(*key, check_archive=True), want)

    def test_options(self) -> None:
        due = datetime.now(timezone.utc) + timedelta(hours=1)
        with psycopg.connect(DATABASE) as connection:
            taskledger.psycopg.enqueue(connection, self.kind, "before")
            taskledger.psycopg.enqueue(
                connection, self.kind, "after", after=[(self.kind, "before")], otherwise="run", priority=1,
                tags=["vip", "Ä"], retry={"ladder": [60]}, finish_by=due, start_by=due, data_version=2, shard=7,
                actor="till-7")
            taskledger.psycopg.enqueue(connection, self.kind, "at", run_at=due)
            for again in ({"a": 1}, {"a": 2}):
                task = taskledger.psycopg.enqueue(connection, self.kind, "in", again, run_in=timedelta(seconds=3600.5),
                                                  if_exists="replace")
                self.assertTrue(task.is_new)
            self.assertFalse(
                taskledger.psycopg.enqueue(connection, self.kind, "in", {"a": 3}, if_exists="ignore").same_args)
        row = self.db.execute(
            "select meta, priority, data_version, shard, actor from taskledger.event where kind = %s and biz_id = %s",
            (self.kind, "after")).fetchone()
        assert row is not None
        meta = row[0]
        self.assertEqual(row[1:], (1, 2, 7, "till-7"))
        self.assertEqual((meta["tags"], meta["retry"]), (["vip", "Ä"], {"ladder": [60]}))
        self.assertEqual(meta["after"], {"keys": [{"kind": self.kind, "biz_id": "before"}], "otherwise": "run"})
        self.assertEqual(datetime.fromisoformat(meta["finish_by"]), due)
        times = dict(self.db.execute("select biz_id, (meta ->> 'run_at')::timestamptz from taskledger.event"
                                     " where kind = %s order by version", (self.kind,)).fetchall())
        self.assertEqual(times["at"], due)
        self.assertAlmostEqual((times["in"] - due).total_seconds(), 0.5, delta=30)

    def test_refused(self) -> None:
        with psycopg.connect(DATABASE) as connection:
            with self.assertRaisesRegex(TypeError, "unknown option runin, the options are run_at, run_in"):
                taskledger.psycopg.enqueue(connection, self.kind, "A", runin=1)  # type: ignore[call-arg]
            with self.assertRaisesRegex(ValueError, "run_at needs a time zone"):
                taskledger.psycopg.enqueue(connection, self.kind, "A", run_at=datetime(2026, 1, 1))
            with self.assertRaises(ValueError):
                taskledger.psycopg.enqueue(connection, self.kind, "A", float("nan"))
            with self.assertRaisesRegex(psycopg.errors.InvalidParameterValue, "invalid priority 9"):
                taskledger.psycopg.enqueue(connection, self.kind, "A", priority=9)

