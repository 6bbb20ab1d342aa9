"""Tasks to be enqueued: the SQL function taskledger.enqueue, and the body of POST /v1/tasks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from . import _telemetry

Seconds = float | int | timedelta
Key = tuple[str, str]


class Options(TypedDict, total=False):
    """Options of enqueue; all may be missing. Times need a time zone."""

    run_at: datetime | None
    run_in: Seconds | None
    start_by: datetime | None  # the deadline of the first attempt
    finish_by: datetime | None  # the deadline of the task
    after: Iterable[Key] | None  # (kind, biz_id) of tasks that must have succeeded before
    otherwise: Literal["cancel", "run", "wait"] | None  # what happens if one of after fails
    priority: int | None  # 1 urgent, 2 high, 3 normal, 4 low
    if_exists: Literal["same", "ignore", "replace", "rerun"] | None
    check_archive: bool | None  # answer an archived task at once; default: a new task is returned, and does not run
    tags: Sequence[str] | None
    retry: dict[str, Any] | None  # the task's own retry policy, such as {"ladder": [60, 300]}
    data_version: int | None
    shard: int | None
    actor: str | None  # only in SQL: over HTTP it is the token's name


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The task after an enqueue. is_new is false if it existed, and nothing was written."""

    is_new: bool
    state: str
    version: int
    same_args: bool
    position: int  # of the event with the args; 0 of an archived task
    archived: bool  # only with check_archive; its args are not compared


class OtherArgs(Exception):
    """The task exists with other args. Nothing was written: choose another biz_id, or if_exists."""


def seconds(value: Seconds) -> float:
    """Return a duration in seconds."""
    number = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not math.isfinite(number):
        raise ValueError(f"a duration must be a number of seconds, got {number}")
    return number


def timestamp(name: str, at: datetime) -> str:
    """Return a time as RFC 3339."""
    if at.tzinfo is None:
        raise ValueError(f"{name} needs a time zone, such as datetime.now(timezone.utc), got {at.isoformat()}")
    return at.isoformat()


def in_or_at(name: str, until: Seconds | datetime) -> dict[str, Any]:
    """Return the member in or at of a snooze."""
    return {"at": timestamp(name, until)} if isinstance(until, datetime) else {"in": seconds(until)}


def _members(kind: str, biz_id: str, args: Any, options: Options) -> dict[str, Any]:
    """Return the members of a task as JSON, without those that are not set."""
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown option {min(unknown)}, the options are {', '.join(Options.__annotations__)}")
    o = dict(options)
    members: dict[str, Any] = {"kind": kind, "biz_id": biz_id, "args": args}
    if o.get("after") is not None:
        members["after"] = {"keys": [{"kind": k, "biz_id": b} for k, b in o.pop("after")],  # type: ignore[attr-defined]
                            **({"otherwise": o["otherwise"]} if o.get("otherwise") else {})}
    for name, value in o.items():
        if value is None or name in ("after", "otherwise"):
            continue
        if isinstance(value, datetime):
            value = timestamp(name, value)
        elif isinstance(value, timedelta) or name == "run_in":
            value = seconds(value)  # type: ignore[arg-type]
        members[name] = value
    return {name: value for name, value in members.items() if value is not None}


def body(kind: str, biz_id: str, args: Any, options: Options) -> dict[str, Any]:
    """Return the body of POST /v1/tasks."""
    members = _members(kind, biz_id, args, options)
    if "actor" in members:
        raise TypeError("actor cannot be set over HTTP: it is the token's name")
    return members


_CASTS = {"args": "json", "meta": "json", "after": "json", "run_at": "timestamptz", "start_by": "timestamptz",
          "finish_by": "timestamptz", "run_in": "interval", "shard": "integer", "data_version": "integer",
          "priority": "integer", "check_archive": "boolean"}


def call(function: str, columns: str, arguments: dict[str, tuple[Any, str]]) -> tuple[str, list[str]]:
    """Return a call of an SQL function with its values, which are text, as $1, $2, ... Each appears once, in order."""
    named = ", ".join(f"{name} => cast(cast(${i} as text) as {type_})"
                      for i, (name, (_, type_)) in enumerate(arguments.items(), 1))
    source = f"taskledger.{function}({named})"
    statement = f"select {columns} from {source}" if columns else f"select cast({source} as text)"
    return statement, [str(value) for value, _ in arguments.values()]


def statement(kind: str, biz_id: str, args: Any, options: Options) -> tuple[str, list[str]]:
    """Return the call of taskledger.enqueue and its values."""
    members = _members(kind, biz_id, args, options)
    meta = {**_telemetry.carrier(), **{m: members.pop(m) for m in ("tags", "retry") if m in members}}
    if meta:
        members["meta"] = meta
    values: dict[str, tuple[Any, str]] = {}
    for name, value in members.items():
        cast = _CASTS.get(name, "text")
        if cast == "json":
            value = json.dumps(value, allow_nan=False)
        elif cast == "interval":
            value = f"{value:.6f} seconds"
        values[name] = value, cast
    return call("enqueue", "is_new, cast(state as text), version, same_args, position", values)


def enqueued(row: Sequence[Any], key: Key, options: Options) -> Enqueued:
    """Return the answer of taskledger.enqueue, or raise OtherArgs."""
    is_new, state, version, same_args, position = row
    task = Enqueued(is_new, state, version, same_args, position or 0, position is None)
    if not task.same_args and options.get("if_exists") != "ignore":
        raise OtherArgs(f"{key[0]}/{key[1]} exists with other args, and is {task.state}")
    return task


def styled(sql: str, style: str) -> str:
    """Return a statement with parameters as the driver needs them: "$1", "%s" or ":p1"."""
    if style == "$1":
        return sql
    return re.sub(r"\$(\d+)", "%s" if style == "%s" else r":p\1", sql)
