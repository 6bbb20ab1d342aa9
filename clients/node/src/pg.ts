/** node-postgres: enqueue in the caller's transaction, and a database for exactly once. */

import { enqueueBy, type EnqueueOptions, type Enqueued } from "./enqueue.js";
import type { Database } from "./exactly.js";

/** The part of pg's Client that is used. */
export interface PgClient {
  query(text: string, values?: string[]): Promise<{ rows: Record<string, unknown>[] }>;
}

/** The part of pg's Pool that is used. */
export interface PgPool<C extends PgClient> {
  connect(): Promise<C & { release(error?: Error | boolean): void }>;
}

/** Enqueues a task in the client's transaction: the task exists if and only if that commits. */
export function enqueue(
  client: PgClient, kind: string, bizId: string, args?: unknown, options?: EnqueueOptions,
): Promise<Enqueued> {
  return enqueueBy(async (text, values) => (await client.query(text, values)).rows, kind, bizId, args, options);
}

/** Transactions of a worker from a pool. Handlers get the client. */
export function database<C extends PgClient>(pool: PgPool<C>): Database<C> {
  return {
    async transaction(work) {
      const client = await pool.connect();
      let broken: Error | undefined;
      try {
        await client.query("begin");
        const value = await work(client);
        await client.query("commit");
        return value;
      } catch (error) {
        await client.query("rollback").catch((lost: Error) => { broken = lost; });
        throw error;
      } finally {
        client.release(broken);
      }
    },
    query: async (client, text, values) => (await client.query(text, values)).rows,
  };
}
