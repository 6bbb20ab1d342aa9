"""Django: enqueue in the transaction of transaction.atomic, and a Database for exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Unpack

from django.db import connections, transaction

from ._enqueue import Enqueued, Options, enqueued, statement, styled

__all__ = ["Database", "enqueue"]


def enqueue(kind: str, biz_id: str, args: Any = None, *, using: str = "default",
            **options: Unpack[Options]) -> Enqueued:
    """Enqueue a task in the current transaction of a database: the task exists if and only if that commits.

    Raise RuntimeError outside of transaction.atomic, where nothing would join the task to the other writes.
    """
    if not connections[using].in_atomic_block:
        raise RuntimeError("enqueue needs a transaction: with transaction.atomic()")
    sql, values = statement(kind, biz_id, args, options)
    return enqueued(_fetch(using, sql, values)[0], (kind, biz_id), options)


def _fetch(using: str, sql: str, values: Sequence[str]) -> list[Any]:
    with connections[using].cursor() as cursor:
        cursor.execute(styled(sql, "%s"), list(values))
        return list(cursor.fetchall())


class Database:
    """Transactions of a worker. Handlers use the ORM; their second argument is the connection."""

    is_async: Literal[False] = False

    def __init__(self, using: str = "default") -> None:
        self._using = using

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        connections[self._using].close_if_unusable_or_obsolete()
        with transaction.atomic(using=self._using):
            yield connections[self._using]

    def rows(self, connection: Any, sql: str, values: Sequence[str]) -> list[Any]:
        return _fetch(self._using, sql, values)
