/** node-postgres: enqueue in the caller's transaction, and a database for exactly once. */

import { enqueueBy, type EnqueueOptions, type Enqueued } from "./enqueue.js";
import type { Database } from "./exactly.js";
import { log } from "./log.js";

/** The part of pg's Client that is used. */
export interface PgClient {
  query(text: string, values?: string[]): Promise<{ rows: Record<string, unknown>[] }>;
}

interface Emitter {
  on?(event: "error", listener: (error: Error) => void): unknown;
  off?(event: "error", listener: (error: Error) => void): unknown;
}

/** The part of pg's Pool that is used. */
export interface PgPool<C extends PgClient> extends Emitter {
  connect(): Promise<C & Emitter & { release(error?: Error | boolean): void }>;
}

/** Enqueues a task in the client's transaction: the task exists if and only if that commits. */
export function enqueue(
  client: PgClient, kind: string, bizId: string, args?: unknown, options?: EnqueueOptions,
): Promise<Enqueued> {
  return enqueueBy(async (text, values) => (await client.query(text, values)).rows, kind, bizId, args, options);
}

/** Transactions of a worker from a pool. Handlers get the client. */
export function database<C extends PgClient>(pool: PgPool<C>): Database<C> {
  // pg emits lost connections as events too, which end the process if nobody listens.
  pool.on?.("error", (error) => log("warn", "an idle connection is lost", { error }));
  return {
    async transaction(work) {
      const client = await pool.connect();
      let broken: Error | undefined;
      const lost = (error: Error) => { broken = error; };
      client.on?.("error", lost);
      try {
        await client.query("begin");
        const value = await work(client);
        await client.query("commit");
        return value;
      } catch (error) {
        await client.query("rollback").catch(lost);
        throw error;
      } finally {
        client.release(broken);
        client.off?.("error", lost);
      }
    },
    query: async (client, text, values) => (await client.query(text, values)).rows,
  };
}
