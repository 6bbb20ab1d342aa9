"""Successes on their way to the server."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ._http import Api, Ended, Problem

MOST, MOST_BYTES = 100, 512 * 1024  # in one call
Done = Callable[[Exception | None], None]


class Finishes:
    """Sends successes: one at once, and those that come while a call is under way together in the next one."""

    def __init__(self, api: Api, pause: Callable[[float], bool]) -> None:
        """pause ends the repetition of calls, as in Api.repeat."""
        self._api, self._pause = api, pause
        self._waiting: deque[tuple[bytes, Done]] = deque()
        self._changed, self._is_closed = threading.Condition(), False

    def add(self, body: dict[str, Any], done: Done) -> None:
        """Send the body of a success. done gets None when the server has recorded it, or the error."""
        text = json.dumps(body, allow_nan=False).encode()
        with self._changed:
            self._waiting.append((text, done))
            self._changed.notify()

    def close(self) -> None:
        """End run once nothing waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def run(self) -> None:
        """Send until close, in a thread of its own."""
        while group := self._next():
            self._send(group)

    def _next(self) -> list[tuple[bytes, Done]]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            group: list[tuple[bytes, Done]] = []
            size = 0
            while self._waiting and len(group) < MOST and (not group or size + len(self._waiting[0][0]) <= MOST_BYTES):
                group.append(self._waiting.popleft())
                size += len(group[-1][0])
            return group

    def _send(self, group: list[tuple[bytes, Done]]) -> None:
        try:
            answer = self._api.repeat("POST", "/v1/work:finish", pause=self._pause,
                                      text=b'{"tasks":[' + b",".join(text for text, _ in group) + b"]}")
        except (Ended, Problem) as error:
            if len(group) > 1 and isinstance(error, Problem):
                for one in group:  # one of them may be at fault
                    self._send([one])
                return
            for _, done in group:
                done(error)
            return
        for (_, done), task in zip(group, answer["tasks"]):
            problem = task.get("problem")
            done(None if problem is None else Problem(problem["status"], json.dumps(problem).encode()))
