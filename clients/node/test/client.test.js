// Enqueue over HTTP, wait for results, and subscribe.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Client, NoAnswer, OtherArgs, Permanent, TaskFailed, WaitTimeout } from "taskledger";
import { client, newKind, newWorker, pool, running, token, url } from "./base.js";

after(() => pool.end());

test("enqueue and wait", async () => {
  const kind = newKind();
  await running(newWorker().handle(kind, (job) => ({ doubled: job.args * 2 })), async () => {
    assert.equal((await client.enqueue(kind, "a/b:ä", 21, { tags: ["x"], priority: 1 })).isNew, true);
    assert.deepEqual(await client.wait(kind, "a/b:ä", { timeout: 120 }), { doubled: 42 });
  });
  assert.equal((await client.enqueue(kind, "a/b:ä", 21)).isNew, false);
  await assert.rejects(client.enqueue(kind, "a/b:ä", 22), (error) =>
    error instanceof OtherArgs && /^the task .* exists with other args/.test(error.message));
});

test("wait for a task that fails", async () => {
  const kind = newKind();
  await running(newWorker().handle(kind, () => { throw new Permanent("no such customer"); }), async () => {
    await client.enqueue(kind, "dead");
    await assert.rejects(client.wait(kind, "dead", { timeout: 120 }),
      (error) => error instanceof TaskFailed && /dead is dead: no such customer/.test(error.message));
  });
  await client.enqueue(kind, "waits");
  await assert.rejects(client.wait(kind, "waits", { timeout: 0.1 }), WaitTimeout);
  await assert.rejects(client.wait(kind, "unknown"), { status: 404, code: "unknown_task" });
});

test("a server that is away, or refuses the token", async () => {
  await assert.rejects(new Client({ url: "http://127.0.0.1:1" }).enqueue("a", "b", 1, { timeout: 0.3 }), NoAnswer);
  await assert.rejects(new Client({ url, token: "tlk_invalid" }).enqueue("a", "b"), { status: 401 });
});

test("events resume", async () => {
  const kind = newKind();
  for (const id of ["1", "2", "3"]) await client.enqueue(kind, id, { n: id });
  let last;
  for await (const event of client.events({ startAfter: 0, kinds: [kind] })) {
    assert.deepEqual([event.kind, event.bizId, event.type, event.data], [kind, "1", "enqueued", { n: "1" }]);
    last = event.id;
    break;
  }
  const seen = new Set();
  const stop = new AbortController();
  const chosen = { startAfter: last, kinds: [kind], types: ["enqueued"], signal: stop.signal };
  for await (const event of client.events(chosen)) {
    seen.add(event.bizId);
    if (event.bizId === "3") await client.enqueue(kind, "4");
    if (event.bizId === "4") stop.abort();
  }
  seen.delete("1"); // about a second of events may come again
  assert.deepEqual([...seen], ["2", "3", "4"]);
  await assert.rejects(new Client({ url, token }).events({ startAfter: "nonsense" }).next(), { status: 400 });
});
