// A real taskledger serve, of which the caller has set the addresses: `make clients` does.
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { Client, setLogger, Worker } from "taskledger";

export const url = process.env.TASKLEDGER_URL;
export const token = process.env.TASKLEDGER_TOKEN;
export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 20 });
export const client = new Client({ url, token });
setLogger(() => {});

/** A kind of one test. */
export const newKind = () => `node.${randomBytes(8).toString("hex")}`;

export async function history(kind, bizId) {
  const { rows } = await pool.query(
    "select type::text from taskledger.event where kind = $1 and biz_id = $2 order by version", [kind, bizId]);
  return rows.map((row) => row.type);
}

/** The data of the last event of a type. */
export async function data(kind, bizId, type) {
  const { rows } = await pool.query(
    "select data from taskledger.event where kind = $1 and biz_id = $2 and type::text = $3 order by version desc limit 1",
    [kind, bizId, type]);
  return rows[0]?.data;
}

export async function until(what, condition) {
  for (const end = Date.now() + 120_000; Date.now() < end; await sleep(20)) {
    const value = await condition();
    if (value) return value;
  }
  throw new Error(`${what} did not happen`);
}

export const newWorker = (options = {}) => new Worker({ url, token, slots: 4, shutdownTimeout: 10, ...options });

/** Runs a worker during a test, and stops it gracefully. */
export async function running(worker, during) {
  const running = worker.run();
  const failed = running.then(() => new Promise(() => {})); // never resolves
  try {
    await Promise.race([failed, during()]);
  } finally {
    worker.stop();
    await running;
  }
}
