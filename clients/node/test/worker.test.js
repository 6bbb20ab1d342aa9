// Workers over HTTP.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Cancelled, Permanent, Retry, setLogger, Snooze, TaskFailed, Worker, log } from "taskledger";
import { client, data, history, newKind, newWorker, pool, running, token, until, url } from "./base.js";

after(() => pool.end());
const wait = (kind, id) => client.wait(kind, id, { timeout: 120 });

test("results, several at a time", async () => {
  const kind = newKind();
  let begun = 0;
  let all;
  const together = new Promise((resolve) => { all = resolve; });
  await running(newWorker({ slots: 3 }).handle(kind, async (job) => {
    if (++begun === 3) all();
    await together;
    return { args: job.args, attempt: job.attempt };
  }), async () => {
    for (const id of ["1", "é/2", "3"]) await client.enqueue(kind, id, { ä: id });
    assert.deepEqual(await wait(kind, "é/2"), { args: { ä: "é/2" }, attempt: 1 });
  });
});

test("failures", async () => {
  const kind = newKind();
  let snoozed = false;
  const worker = newWorker().handle(kind, (job) => {
    if (job.bizId === "error" && job.attempt < 3) throw new RangeError(`attempt ${job.attempt}`);
    if (job.bizId === "permanent") throw new Permanent("never", { cause: new SyntaxError("bad") });
    if (job.bizId === "retry" && job.attempt === 1) throw new Retry("soon", { retryIn: 0.01 });
    if (job.bizId === "snooze" && !snoozed) {
      snoozed = true;
      throw new Snooze(0.01);
    }
    if (job.bizId === "result") return 1n;
    if (job.bizId === "large") return "x".repeat(300_000);
    return job.attempt;
  }, { retry: { ladder: [0, 0, 0] } });
  await running(worker, async () => {
    for (const id of ["error", "permanent", "retry", "snooze"]) await client.enqueue(kind, id);
    for (const id of ["result", "large"]) await client.enqueue(kind, id, undefined, { retry: { ladder: [0] } });
    assert.equal(await wait(kind, "error"), 3);
    assert.equal(await wait(kind, "retry"), 2);
    await wait(kind, "snooze");
    for (const [id, text] of [["permanent", /never/], ["result", /not JSON/], ["large", /262144|256 KiB|too_large/]]) {
      await assert.rejects(wait(kind, id), (error) => error instanceof TaskFailed && text.test(error.message));
    }
  });
  assert.equal((await data(kind, "error", "failed")).error.type, "RangeError");
  assert.equal((await data(kind, "permanent", "failed")).error.type, "SyntaxError");
  assert.equal((await history(kind, "snooze")).includes("failed"), false);
});

test("a kind that never had a task is logged once", async () => {
  const kind = newKind();
  await client.enqueue(kind, "A");
  const records = [];
  setLogger((record) => record.level === "warn" && records.push(record));
  const worker = newWorker({ wait: 0.1 }).handle(kind, () => {}).handle(`${kind}x`, (job) => job.kind);
  await running(worker, async () => {
    await until("a warning", () => records.length);
    await sleep(500);
    await client.enqueue(`${kind}x`, "A");
    assert.equal(await client.wait(`${kind}x`, "A", { timeout: 120 }), `${kind}x`);
  });
  setLogger(() => {});
  const message = `no task of kind ${kind}x has been enqueued yet; did you mean ${kind}?`;
  assert.deepEqual(records, [{ level: "warn", message }]);
});

test("odd errors fail their tasks, and not the worker", async () => {
  const kind = newKind();
  const odd = {
    date: () => new Snooze(new Date(NaN)),
    prototype: () => Object.create(null),
    message: () => Object.assign(new Error(), { message: { code: 7 } }),
    stack: () => Object.assign(new Error("x"), { stack: 7 }),
    number: () => new Snooze(NaN),
    bigint: () => new Retry("x", { retryIn: 0n }),
  };
  await running(newWorker().handle(kind, (job) => { throw odd[job.bizId](); }), async () => {
    for (const id in odd) await client.enqueue(kind, id, undefined, { retry: { ladder: [0] } });
    for (const id in odd) await assert.rejects(wait(kind, id), TaskFailed);
  });
});

test("progress", async () => {
  const kind = newKind();
  let end;
  const ended = new Promise((resolve) => { end = resolve; });
  await running(newWorker().handle(kind, async (job) => {
    await job.progress({ done: 7 });
    await ended;
  }), async () => {
    await client.enqueue(kind, "A");
    await until("progress", () => data(kind, "A", "progressed"));
    end();
    await wait(kind, "A");
  });
});

test("cancelled while it runs", async () => {
  const kind = newKind();
  let reason;
  let begin;
  const begun = new Promise((resolve) => { begin = resolve; });
  await running(newWorker().handle(kind, async (job) => {
    begin();
    await sleep(60_000, undefined, { signal: job.signal }).catch(() => { reason = job.signal.reason; });
    job.signal.throwIfAborted();
  }), async () => {
    await client.enqueue(kind, "A");
    await begun;
    const response = await fetch(`${url}/v1/tasks/${kind}/A:cancel`, {
      method: "POST", headers: { authorization: `Bearer ${token}` },
    });
    assert.equal(response.status, 200);
    await until("the end of the handler", () => reason);
  });
  assert.ok(reason instanceof Cancelled);
  assert.equal(reason.reason, "cancelled");
  assert.equal((await history(kind, "A")).at(-1), "cancelled");
});

test("at most once", async () => {
  const kind = newKind();
  await running(newWorker({ guarantee: "at most once" }).handle(kind, (job) => {
    if (job.bizId === "unsafe") throw new Error("the answer was lost");
    if (job.attempt === 1) throw new Retry("nothing has happened", { retryIn: 0, safe: true });
    return job.attempt;
  }), async () => {
    await client.enqueue(kind, "unsafe");
    await client.enqueue(kind, "safe");
    assert.equal(await wait(kind, "safe"), 2);
    await assert.rejects(wait(kind, "unsafe"), /the answer was lost/);
  });
});

test("what is refused", async () => {
  await assert.rejects(new Worker({ url, token: "tlk_invalid" }).handle("a", () => {}).run(), { status: 401 });
  await assert.rejects(new Worker({ url, token }).run(), /1 to 100 kinds, got 0/);
  assert.throws(() => new Worker({ url, slots: 0 }), /slots must be at least 1, got 0/);
  assert.throws(() => new Worker({ url }).handle("a", () => {}).handle("a", () => {}), /two handlers/);
});

test("a shutdown gives back what has not ended", async () => {
  const kind = newKind();
  let reason;
  let begin;
  const begun = new Promise((resolve) => { begin = resolve; });
  await running(newWorker({ shutdownTimeout: 0.2 }).handle(kind, async (job) => {
    begin();
    await sleep(60_000, undefined, { signal: job.signal }).catch(() => {});
    reason = job.signal.reason.reason;
  }), async () => {
    await client.enqueue(kind, "A");
    await begun;
  });
  assert.equal(reason, "shutdown");
  await running(newWorker().handle(kind, (job) => job.attempt), async () => assert.equal(await wait(kind, "A"), 2));
  assert.equal((await data(kind, "A", "interrupted")).reason, "shutdown");
});

test("SIGTERM", async () => {
  const kind = newKind();
  const program = `
    import { Worker } from "taskledger";
    const worker = new Worker({ url: ${JSON.stringify(url)}, token: ${JSON.stringify(token)} });
    worker.handle(${JSON.stringify(kind)}, async () => {
      console.log("begun");
      await new Promise((resolve) => setTimeout(resolve, 1000));
      return "done";
    });
    await worker.run();
    console.log("stopped");`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  await client.enqueue(kind, "A");
  assert.equal((await lines.next()).value, "begun");
  child.kill("SIGTERM");
  assert.match((await lines.next()).value, /waits up to 20 s for 1 tasks/);
  assert.equal((await lines.next()).value, "stopped");
  assert.deepEqual(await once(child, "exit"), [0, null]);
  assert.equal(await client.wait(kind, "A", { timeout: 5 }), "done");
});

test("log and trace", async () => {
  const kind = newKind();
  const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const records = [];
  setLogger((record) => records.push(record));
  await running(newWorker().handle(kind, async (job) => {
    log("warn", "careful");
    if (job.bizId === "A") await client.enqueue(kind, "child");
    return job.traceparent;
  }), async () => {
    const response = await fetch(`${url}/v1/tasks`, {
      method: "POST", body: JSON.stringify({ kind, biz_id: "A" }),
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json", traceparent: trace },
    });
    assert.equal(response.status, 201);
    assert.equal(await wait(kind, "A"), trace);
    assert.equal(await wait(kind, "child"), trace);
  });
  const { level, message, kind: of, bizId, attempt } = records.find((record) => record.message === "careful");
  assert.deepEqual([level, message, of, bizId, attempt], ["warn", "careful", kind, "A", 1]);
});
