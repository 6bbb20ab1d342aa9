// A shop: an order and its coupon's task in one transaction, a worker that sends the coupon exactly once, the result.
import pg from "pg";
import { Client, Permanent, TaskFailed, Worker } from "taskledger";
import { database, enqueue } from "taskledger/pg";

const { TASKLEDGER_URL: url, TASKLEDGER_TOKEN: token, DATABASE_URL: connectionString } = process.env;
const pool = new pg.Pool({ connectionString });
const client = new Client({ url, token });
const worker = new Worker({ url, token, slots: 4, database: database(pool) });

worker.handle("shop.coupon", async (job, db) => {
  if (job.args.cents <= 0) throw new Permanent(`a coupon of ${job.args.cents} cents`);
  await db.query("insert into shop_coupon (order_no, cents) values ($1, $2)", [job.bizId, job.args.cents]);
  return { code: `AUTUMN-${job.bizId}` };
}, { retry: { ladder: [1, 60] } });

async function placeOrder(number, cents) {
  const db = await pool.connect();
  try {
    await db.query("begin");
    await db.query("insert into shop_order (number) values ($1)", [number]);
    await enqueue(db, "shop.coupon", number, { cents }, { tags: ["autumn"] });
    await db.query("commit");
  } catch (error) {
    await db.query("rollback");
    throw error;
  } finally {
    db.release();
  }
}

await pool.query(`select pg_advisory_xact_lock(hashtext('shop')); -- two processes may start at once
  create table if not exists shop_order (number text primary key);
  create table if not exists shop_coupon (order_no text primary key, cents integer)`);
const running = worker.run();
await placeOrder("J-1", 500);
console.log(await client.wait("shop.coupon", "J-1", { timeout: 60 }));
await placeOrder("J-2", 0);
try {
  await client.wait("shop.coupon", "J-2", { timeout: 60 });
} catch (error) {
  if (!(error instanceof TaskFailed)) throw error;
  console.log(error.message);
}
for await (const event of client.events({ startAfter: 0, kinds: ["shop.*"], types: ["succeeded"] })) {
  console.log(event.type, event.bizId);
  break;
}
worker.stop();
await running;
await pool.end();
