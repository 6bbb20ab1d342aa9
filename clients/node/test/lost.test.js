// Answers that are lost: no task runs twice, and no outcome is missing.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { Worker } from "taskledger";
import { client, newKind, pool, running, token, url } from "./base.js";

after(() => pool.end());

test("lost answers", async () => {
  let lost = 0;
  let n = 0;
  // Passes each request on, and closes the connection in place of every third answer.
  const proxy = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const { authorization } = request.headers;
    const answer = await fetch(url + request.url, {
      method: request.method, body: Buffer.concat(parts), headers: { authorization, "content-type": "application/json" },
    });
    const text = await answer.text();
    if (++n % 3 === 0) {
      lost++;
      response.destroy();
    } else {
      response.writeHead(answer.status).end(text);
    }
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const kind = newKind();
  const runs = {};
  const worker = new Worker({ url: `http://127.0.0.1:${proxy.address().port}`, token, slots: 5, wait: 1 });
  await running(worker.handle(kind, (job) => {
    runs[job.bizId] = (runs[job.bizId] ?? 0) + 1;
    return job.attempt;
  }), async () => {
    for (let i = 0; i < 15; i++) { // one by one, so that there are calls for each
      await client.enqueue(kind, String(i));
      await client.wait(kind, String(i), { timeout: 120 });
    }
    for (let i = 15; i < 40; i++) await client.enqueue(kind, String(i));
    for (let i = 0; i < 40; i++) assert.equal(await client.wait(kind, String(i), { timeout: 120 }), 1);
  });
  proxy.closeAllConnections();
  proxy.close();
  assert.deepEqual(new Set(Object.values(runs)), new Set([1]));
  assert.ok(lost > 8, `only ${lost} answers were lost`);
});
