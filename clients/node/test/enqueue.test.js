// Enqueue in the caller's transaction, by each driver.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import knexOf from "knex";
import { OtherArgs } from "taskledger";
import { enqueueWith } from "taskledger/drizzle";
import { enqueue as knexEnqueue } from "taskledger/knex";
import { enqueue } from "taskledger/pg";
import { enqueue as prismaEnqueue } from "taskledger/prisma";
import { client, data, history, newKind, pool } from "./base.js";
import { prisma } from "./prisma.js";

const knex = knexOf({ client: "pg", connection: process.env.DATABASE_URL });
const orm = drizzle(pool);
const drizzleEnqueue = enqueueWith(sql);
after(() => Promise.all([knex.destroy(), prisma.$disconnect(), pool.end()]));

/** Runs work in a transaction of pg. */
async function transaction(work, isolated = "") {
  const client = await pool.connect();
  try {
    await client.query(`begin ${isolated}`);
    const value = await work(client);
    await client.query("commit");
    return value;
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}

/** A task that was archived before the tests. */
const archived = ["archived.order", "A-1", { cents: 1 }, { checkArchive: true }];
const wasArchived = { isNew: false, state: "succeeded", version: 3, sameArgs: true, position: 0, archived: true };

const args = { cents: 500, text: "ä?$1%s" };
const drivers = {
  pg: [transaction, enqueue],
  knex: [(work) => knex.transaction(work), knexEnqueue],
  drizzle: [(work) => orm.transaction(work), drizzleEnqueue],
  prisma: [(work) => prisma.$transaction(work), prismaEnqueue],
};
for (const [name, [begin, enqueueIn]] of Object.entries(drivers)) {
  test(`${name}: the task exists if and only if the transaction commits`, async () => {
    const kind = newKind();
    const task = await begin((tx) => enqueueIn(tx, kind, "A-1", args, { runIn: 60.5 }));
    assert.deepEqual([task.isNew, task.state, task.version, task.sameArgs, task.archived],
      [true, "scheduled", 1, true, false]);
    assert.deepEqual(await begin((tx) => enqueueIn(tx, ...archived)), wasArchived);
    await assert.rejects(begin(async (tx) => {
      await enqueueIn(tx, kind, "rolled back");
      throw new RangeError("no");
    }), /no/);
    assert.deepEqual(await history(kind, "A-1"), ["scheduled"]);
    assert.deepEqual(await data(kind, "A-1", "scheduled"), args);
    assert.deepEqual(await history(kind, "rolled back"), []);
    assert.equal((await begin((tx) => enqueueIn(tx, kind, "A-1", args))).isNew, false);
    await assert.rejects(begin((tx) => enqueueIn(tx, kind, "A-1", { cents: 1 })), OtherArgs);
    const ignored = await begin((tx) => enqueueIn(tx, kind, "A-1", { cents: 1 }, { ifExists: "ignore" }));
    assert.equal(ignored.sameArgs, false);
  });
}

test("an archived task over HTTP", async () => {
  assert.deepEqual(await client.enqueue(...archived), wasArchived);
});

test("options", async () => {
  const kind = newKind();
  const due = new Date(Date.now() + 3_600_000);
  await transaction(async (tx) => {
    await enqueue(tx, kind, "before");
    await enqueue(tx, kind, "after", undefined, {
      after: [{ kind, bizId: "before" }], otherwise: "run", priority: 1, tags: ["vip", "Ä"], retry: { ladder: [60] },
      finishBy: due, startBy: due, dataVersion: 2, shard: 7, actor: "till-7",
    });
    await enqueue(tx, kind, "at", null, { runAt: due });
  });
  const { rows: [row] } = await pool.query(
    "select meta, priority, data_version, shard, actor from taskledger.event where kind = $1 and biz_id = 'after'", [kind]);
  const { meta, ...columns } = row;
  assert.deepEqual(columns, { priority: 1, data_version: 2, shard: 7, actor: "till-7" });
  assert.deepEqual([meta.tags, meta.retry], [["vip", "Ä"], { ladder: [60] }]);
  assert.deepEqual(meta.after, { keys: [{ kind, biz_id: "before" }], otherwise: "run" });
  assert.equal(new Date(meta.finish_by).getTime(), due.getTime());
  const { rows: [at] } = await pool.query(
    "select (meta ->> 'run_at')::timestamptz as run_at from taskledger.event where kind = $1 and biz_id = 'at'", [kind]);
  assert.equal(at.run_at.getTime(), due.getTime());
});

test("what is refused", async () => {
  await transaction(async (tx) => {
    await assert.rejects(enqueue(tx, newKind(), "A", 1, { runin: 1 }), /unknown option runin, the options are runAt/);
    await assert.rejects(enqueue(tx, newKind(), "A", 1, { runAt: new Date("x") }), /runAt is an invalid Date/);
    await assert.rejects(enqueue(tx, newKind(), "A", 1, { priority: 9 }), /invalid priority 9/);
  });
});
