// Exactly once: the effect and the outcome in one transaction, by each driver.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import knexOf from "knex";
import pg from "pg";
import { Permanent, Retry } from "taskledger";
import { database as drizzleDatabase } from "taskledger/drizzle";
import { database as knexDatabase } from "taskledger/knex";
import { database } from "taskledger/pg";
import { database as prismaDatabase } from "taskledger/prisma";
import { client, history, newKind, newWorker, pool, running, until } from "./base.js";
import { prisma } from "./prisma.js";

const knex = knexOf({ client: "pg", connection: process.env.DATABASE_URL });
before(() => pool.query("create table if not exists node_effect (kind text, biz_id text)"));
after(() => Promise.all([knex.destroy(), prisma.$disconnect(), pool.end()]));

const effects = async (kind) =>
  (await pool.query("select biz_id from node_effect where kind = $1", [kind])).rows.map((row) => row.biz_id);
const insert = "insert into node_effect (kind, biz_id) values ";

const drivers = {
  pg: [database(pool), (db, job) => db.query(insert + "($1, $2)", [job.kind, job.bizId])],
  knex: [knexDatabase(knex), (db, job) => db.raw(insert + "(?, ?)", [job.kind, job.bizId])],
  drizzle: [drizzleDatabase(sql, drizzle(pool)),
    (db, job) => db.execute(sql`insert into node_effect (kind, biz_id) values (${job.kind}, ${job.bizId})`)],
  prisma: [prismaDatabase(prisma),
    (db, job) => db.$executeRaw`insert into node_effect (kind, biz_id) values (${job.kind}, ${job.bizId})`],
};
for (const [name, [db, effect]] of Object.entries(drivers)) {
  test(name, async () => {
    const kind = newKind();
    await running(newWorker({ database: db }).handle(kind, async (job, connection) => {
      await effect(connection, job);
      if (job.bizId === "dead") throw new Permanent("never");
      if (job.attempt === 1) throw new Retry("once more", { retryIn: 0 });
      return job.args;
    }), async () => {
      await client.enqueue(kind, "A", { cents: 5 });
      await client.enqueue(kind, "dead");
      assert.deepEqual(await client.wait(kind, "A", { timeout: 120 }), { cents: 5 });
      await assert.rejects(client.wait(kind, "dead", { timeout: 120 }), /never/);
    });
    assert.deepEqual(await history(kind, "A"), ["enqueued", "started", "failed", "released", "started", "succeeded"]);
    assert.deepEqual(await effects(kind), ["A"]);
  });
}

test("a lost attempt rolls back", async () => {
  const kind = newKind();
  await running(newWorker({ database: database(pool) }).handle(kind, async (job, connection) => {
    await drivers.pg[1](connection, job);
    await pool.query("select taskledger.fail($1, $2, $3, 'taken', permanent => true)", [kind, job.bizId, job.version]);
  }), async () => {
    await client.enqueue(kind, "A");
    await assert.rejects(client.wait(kind, "A", { timeout: 120 }), /taken/);
  });
  assert.deepEqual(await effects(kind), []);
});

const databases = {
  pg: database, drizzle: (own) => drizzleDatabase(sql, drizzle(own)), prisma: () => prismaDatabase(prisma),
};
for (const name of Object.keys(databases)) {
  test(`a connection of ${name} that is lost within a handler`, async () => {
    const kind = newKind();
    const own = new pg.Pool({ connectionString: process.env.DATABASE_URL });
    const db = databases[name](own);
    await running(newWorker({ database: db }).handle(kind, async (job, connection) => {
      await drivers[name][1](connection, job);
      if (job.attempt > 1) return;
      const [{ pid }] = await db.query(connection, "select pg_backend_pid() as pid", []);
      await pool.query("select pg_terminate_backend($1)", [pid]);
      await until("the end of the connection", async () =>
        (await pool.query("select from pg_stat_activity where pid = $1", [pid])).rows.length === 0);
    }), async () => {
      await client.enqueue(kind, "A");
      await client.wait(kind, "A", { timeout: 120 });
    });
    await own.end();
    assert.deepEqual(await history(kind, "A"), ["enqueued", "started", "failed", "released", "started", "succeeded"]);
    assert.deepEqual(await effects(kind), ["A"]);
  });
}
