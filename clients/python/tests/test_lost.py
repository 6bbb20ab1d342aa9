"""Answers that are lost: no task runs twice, and no outcome is missing."""

from __future__ import annotations

import collections
import http.client
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import taskledger
from taskledger import Job

from .base import PATIENCE, TOKEN, URL, Case


class Lossy(BaseHTTPRequestHandler):
    """Passes each request on, and closes the connection in place of some answers."""

    protocol_version = "HTTP/1.1"
    chance = random.Random(7)
    lost = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = http.client.HTTPConnection(urlsplit(URL).netloc, timeout=60)
        server.request("POST", self.path, body, {n: v for n, v in self.headers.items() if n.lower() != "host"})
        answer = server.getresponse()
        text = answer.read()
        server.close()
        if self.chance.random() < 0.3:
            Lossy.lost += 1
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


class TestLost(Case):
    def test_lost_answers(self) -> None:
        proxy = ThreadingHTTPServer(("127.0.0.1", 0), Lossy)
        proxy.handle_error = lambda *_: None  # type: ignore[method-assign,assignment]
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        self.addCleanup(proxy.shutdown)
        worker = taskledger.Worker(f"http://127.0.0.1:{proxy.server_port}", TOKEN, slots=5, wait=1.0)
        runs: collections.Counter[str] = collections.Counter()

        @worker.handle(self.kind)
        def handler(job: Job) -> int:
            runs[job.biz_id] += 1
            return job.attempt
        with self.running(worker):
            for i in range(15):  # one by one, so that there are calls for each
                self.client.enqueue(self.kind, str(i))
                self.client.wait(self.kind, str(i), PATIENCE)
            for i in range(15, 40):
                self.client.enqueue(self.kind, str(i))
            attempts = [self.client.wait(self.kind, str(i), PATIENCE) for i in range(40)]
        self.assertEqual(attempts, [1] * 40)
        self.assertEqual(set(runs.values()), {1})
        self.assertGreater(Lossy.lost, 5)
