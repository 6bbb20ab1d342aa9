"""SQLAlchemy: enqueue in the caller's transaction, and Databases for exactly once. Any driver of PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal, Unpack

from sqlalchemy import text

from ._enqueue import Enqueued, Options, enqueued, statement, styled

__all__ = ["AsyncDatabase", "Database", "aenqueue", "enqueue"]


def enqueue(connection: Any, kind: str, biz_id: str, args: Any = None, **options: Unpack[Options]) -> Enqueued:
    """Enqueue a task in the transaction of a Connection or a Session: the task exists if and only if that commits."""
    sql, values = statement(kind, biz_id, args, options)
    return enqueued(tuple(connection.execute(*_call(sql, values)).one()), (kind, biz_id), options)


async def aenqueue(connection: Any, kind: str, biz_id: str, args: Any = None, **options: Unpack[Options]) -> Enqueued:
    """Like enqueue, with an AsyncConnection or an AsyncSession."""
    sql, values = statement(kind, biz_id, args, options)
    return enqueued(tuple((await connection.execute(*_call(sql, values))).one()), (kind, biz_id), options)


def _call(sql: str, values: Sequence[str]) -> tuple[Any, dict[str, str]]:
    return text(styled(sql, ":p1")), {f"p{i}": value for i, value in enumerate(values, 1)}


class Database:
    """Transactions of a worker, from an Engine (handlers get a Connection) or a sessionmaker (a Session)."""

    is_async: Literal[False] = False

    def __init__(self, source: Any) -> None:
        self._source = source

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._source.begin() as connection:
            yield connection

    def rows(self, connection: Any, sql: str, values: Sequence[str]) -> list[Any]:
        return [tuple(row) for row in connection.execute(*_call(sql, values)).all()]


class AsyncDatabase:
    """Like Database, from an AsyncEngine or an async_sessionmaker."""

    is_async: Literal[True] = True

    def __init__(self, source: Any) -> None:
        self._source = source

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._source.begin() as connection:
            yield connection

    async def rows(self, connection: Any, sql: str, values: Sequence[str]) -> list[Any]:
        return [tuple(row) for row in (await connection.execute(*_call(sql, values))).all()]
