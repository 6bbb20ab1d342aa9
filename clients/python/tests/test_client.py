"""Enqueue over HTTP, wait for results, and subscribe."""

from __future__ import annotations

import asyncio
import threading

import taskledger

from .base import PATIENCE, TOKEN, URL, Case


class TestClient(Case):
    def test_enqueue_and_wait(self) -> None:
        worker = self.worker()
        worker.handle(self.kind)(lambda job: {"doubled": job.args * 2})
        with self.running(worker):
            task = self.client.enqueue(self.kind, "a/b:ä", 21, tags=["x"], priority=1)
            self.assertTrue(task.is_new)
            self.assertEqual(self.client.wait(self.kind, "a/b:ä", PATIENCE), {"doubled": 42})
        self.assertFalse(self.client.enqueue(self.kind, "a/b:ä", 21).is_new)
        with self.assertRaisesRegex(taskledger.OtherArgs, "^the task .* exists with other args"):
            self.client.enqueue(self.kind, "a/b:ä", 22)

    def test_close(self) -> None:
        async def enqueue() -> bool:
            async with taskledger.AsyncClient(URL, TOKEN) as other:
                task = await other.enqueue(self.kind, "b")
            self.assertEqual(other._client._api._idle, [])
            return task.is_new
        with taskledger.Client(URL, TOKEN) as client:
            client.enqueue(self.kind, "a")
            (used,) = client._api._idle
        self.assertIsNone(used._connection)
        self.assertFalse(client.enqueue(self.kind, "a").is_new)
        client.close()
        self.assertTrue(asyncio.run(enqueue()))

    def test_wait_for_what_fails(self) -> None:
        worker = self.worker()

        @worker.handle(self.kind)
        def handler(job: taskledger.Job) -> None:
            raise taskledger.Permanent("no such customer")
        with self.running(worker):
            self.client.enqueue(self.kind, "dead")
            with self.assertRaisesRegex(taskledger.TaskFailed, "dead is dead: no such customer"):
                self.client.wait(self.kind, "dead", PATIENCE)
        self.client.enqueue(self.kind, "waits")
        with self.assertRaisesRegex(TimeoutError, "waits is available after 0.1 s"):
            self.client.wait(self.kind, "waits", 0.1)
        with self.assertRaises(taskledger.Problem) as refused:
            self.client.wait(self.kind, "unknown")
        self.assertEqual((refused.exception.status, refused.exception.code), (404, "unknown_task"))

    def test_server_is_away(self) -> None:
        with self.assertRaisesRegex(TimeoutError, "does not answer"):
            taskledger.Client("http://127.0.0.1:1").enqueue(self.kind, "A", timeout=0.3)
        with self.assertRaises(taskledger.Problem) as refused:
            taskledger.Client(URL, "tlk_invalid").enqueue(self.kind, "A")
        self.assertEqual(refused.exception.status, 401)

    def test_events_resume(self) -> None:
        for id_ in ("1", "2", "3"):
            self.client.enqueue(self.kind, id_, {"n": id_})
        stop = threading.Event()
        events = self.client.events(start_after=0, kinds=[self.kind], stop=stop)
        first = next(events)
        self.assertEqual((first.kind, first.biz_id, first.type, first.data), (self.kind, "1", "enqueued", {"n": "1"}))
        events.close()
        # It may begin with events from before: about a second of them.
        rest = self.client.events(start_after=first.id, kinds=[self.kind], types=["enqueued"], stop=stop)
        ids = [e.biz_id for e in (next(rest) for _ in range(3))]
        self.client.enqueue(self.kind, "4")
        while len(set(ids)) < 4 and ids[-1] != "4":
            ids.append(next(rest).biz_id)
        self.assertEqual(sorted(set(ids) - {"1"}), ["2", "3", "4"])
        rest.close()

    def test_events_in_a_coroutine(self) -> None:
        async def read() -> list[str]:
            client, found = taskledger.AsyncClient(URL, TOKEN), []
            await client.enqueue(self.kind, "1")
            async for event in client.events(start_after=0, kinds=[self.kind]):
                found.append(event.biz_id)
                if len(found) == 2:
                    return found
                await client.enqueue(self.kind, "2")
            return found
        self.assertEqual(asyncio.run(read()), ["1", "2"])
