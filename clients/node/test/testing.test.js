// The test mode needs no server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Permanent, Retry, setLogger, Snooze, Worker } from "taskledger";
import { runTask } from "taskledger/testing";

test("outcomes", async () => {
  setLogger(() => {});
  const worker = new Worker({ url: "http://127.0.0.1:1" }).handle("mail.send", async (job) => {
    await job.progress("half");
    if (job.args === "permanent") throw new Permanent("no address");
    if (job.args === "retry") throw new Retry("busy", { retryIn: 60 });
    if (job.args === "snooze") throw new Snooze(3600);
    job.signal.throwIfAborted();
    return { attempt: job.attempt };
  });
  const run = (args, more) => runTask(worker, { kind: "mail.send", args, ...more });
  assert.deepEqual(await run(1, { attempt: 2 }), { outcome: "finished", result: { attempt: 2 }, progress: ["half"] });
  const dead = await run("permanent");
  assert.deepEqual([dead.outcome, dead.error.message], ["dead", "no address"]);
  const failed = await run("retry");
  assert.deepEqual([failed.outcome, failed.retryIn], ["failed", 60]);
  assert.equal((await run("snooze")).snoozed, 3600);
  assert.equal((await run(1, { cancelled: "timeout" })).outcome, "failed");
  assert.match((await runTask(worker, { kind: "mail.sent" })).error.message, /no handler of mail.sent/);
});

test("a worker with a database", async () => {
  const worker = new Worker({ url: "http://127.0.0.1:1", database: {} }).handle("a", (_, connection) => connection);
  assert.equal((await runTask(worker, { kind: "a", connection: "c" })).result, "c");
  await assert.rejects(runTask(worker, { kind: "a" }), /connection: db/);
});

test("SQLSTATE of each driver's errors", async () => {
  const { sqlState } = await import(new URL("./exactly.js", import.meta.resolve("taskledger")));
  const prisma = { code: "P2010", meta: { driverAdapterError: { cause: { originalCode: "TL001" } } } };
  assert.equal(sqlState(prisma), "TL001");
  assert.equal(sqlState(new Error("wrapped by Drizzle", { cause: { code: "TL001" } })), "TL001");
  assert.equal(sqlState({ code: "EPIPE" }), "");
  assert.equal(sqlState({ code: "P1001" }), "");
  assert.equal(sqlState(undefined), "");
});
