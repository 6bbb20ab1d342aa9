"""psycopg 3: enqueue in the caller's transaction, and a Database for exactly once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal, Unpack

import psycopg as driver

from ._enqueue import Enqueued, Options, enqueued, statement, styled

__all__ = ["AsyncDatabase", "Database", "aenqueue", "enqueue"]


def enqueue(connection: driver.Connection[Any], kind: str, biz_id: str, args: Any = None,
            **options: Unpack[Options]) -> Enqueued:
    """Enqueue a task in the connection's transaction: the task exists if and only if that commits."""
    sql, values = statement(kind, biz_id, args, options)
    rows = _fetch(driver.Cursor(connection), sql, values)
    return enqueued(rows[0], (kind, biz_id), options)


async def aenqueue(connection: driver.AsyncConnection[Any], kind: str, biz_id: str, args: Any = None,
                   **options: Unpack[Options]) -> Enqueued:
    """Like enqueue, on an asynchronous connection."""
    sql, values = statement(kind, biz_id, args, options)
    rows = await _afetch(connection, sql, values)
    return enqueued(rows[0], (kind, biz_id), options)


def _fetch(cursor: driver.Cursor[Any], sql: str, values: Sequence[str]) -> list[Any]:
    with cursor:
        cursor.row_factory = driver.rows.tuple_row
        cursor.execute(styled(sql, "%s").encode(), values)
        return cursor.fetchall()


async def _afetch(connection: driver.AsyncConnection[Any], sql: str, values: Sequence[str]) -> list[Any]:
    async with driver.AsyncCursor(connection, row_factory=driver.rows.tuple_row) as cursor:
        await cursor.execute(styled(sql, "%s").encode(), values)
        return await cursor.fetchall()


class Database:
    """Transactions of a worker: of a psycopg_pool.ConnectionPool, or each on a new connection to an address."""

    is_async: Literal[False] = False

    def __init__(self, pool_or_address: Any) -> None:
        self._source = pool_or_address

    @contextmanager
    def transaction(self) -> Iterator[driver.Connection[Any]]:
        source = self._source
        with driver.connect(source) if isinstance(source, str) else source.connection() as connection:
            with connection.transaction():
                yield connection

    def rows(self, connection: driver.Connection[Any], sql: str, values: Sequence[str]) -> list[Any]:
        return _fetch(driver.Cursor(connection), sql, values)


class AsyncDatabase:
    """Like Database, with a psycopg_pool.AsyncConnectionPool or an address."""

    is_async: Literal[True] = True

    def __init__(self, pool_or_address: Any) -> None:
        self._source = pool_or_address

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[driver.AsyncConnection[Any]]:
        source = self._source
        context = await driver.AsyncConnection.connect(source) if isinstance(source, str) else source.connection()
        async with context as connection:
            async with connection.transaction():
                yield connection

    async def rows(self, connection: driver.AsyncConnection[Any], sql: str, values: Sequence[str]) -> list[Any]:
        return await _afetch(connection, sql, values)
