"""asyncpg: enqueue in the caller's transaction, and a Database for exactly once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, Unpack

from ._enqueue import Enqueued, Options, enqueued, statement

__all__ = ["Database", "enqueue"]


async def enqueue(connection: Any, kind: str, biz_id: str, args: Any = None, **options: Unpack[Options]) -> Enqueued:
    """Enqueue a task in the connection's transaction: the task exists if and only if that commits."""
    sql, values = statement(kind, biz_id, args, options)
    return enqueued(tuple(await connection.fetchrow(sql, *values)), (kind, biz_id), options)


class Database:
    """Transactions of a worker, from an asyncpg pool."""

    is_async: Literal[True] = True

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._pool.acquire() as connection, connection.transaction():
            yield connection

    async def rows(self, connection: Any, sql: str, values: Sequence[str]) -> list[Any]:
        return [tuple(row) for row in await connection.fetch(sql, *values)]
