/** Drizzle: enqueue in the caller's transaction, and a database for exactly once. */

import { enqueueBy, type EnqueueOptions, type Enqueued } from "./enqueue.js";
import type { Database } from "./exactly.js";

/** The part of a transaction of drizzle-orm that is used. */
export interface DrizzleTransaction {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  execute(query: any): PromiseLike<unknown>;
}

/** The tag sql of drizzle-orm. */
export type SqlTag = (strings: TemplateStringsArray, ...values: unknown[]) => unknown;

const query = async (sql: SqlTag, tx: DrizzleTransaction, text: string, values: string[]) => {
  const parts = text.split(/\$\d+/); // each parameter appears once, in order
  const answer = await tx.execute(sql(Object.assign(parts, { raw: parts }), ...values));
  return (Array.isArray(answer) ? answer : (answer as { rows: unknown[] }).rows) as Record<string, unknown>[];
};

/** Returns enqueue for the tag sql of drizzle-orm: enqueueWith(sql)(tx, kind, bizId, args, options). */
export function enqueueWith(sql: SqlTag) {
  return (
    tx: DrizzleTransaction, kind: string, bizId: string, args?: unknown, options?: EnqueueOptions,
  ): Promise<Enqueued> => enqueueBy((text, values) => query(sql, tx, text, values), kind, bizId, args, options);
}

interface Emitter {
  on?(event: string, listener: (of: Emitter) => void): unknown;
}

/** Transactions of a worker. Handlers get the transaction of Drizzle. A pool of pg has no connections yet. */
export function database<T extends DrizzleTransaction>(
  sql: SqlTag, db: { transaction<R>(work: (tx: T) => Promise<R>): Promise<R>; $client?: unknown },
): Database<T> {
  const pool = db.$client as Emitter | undefined;
  const ignore = () => {}; // pg emits lost connections, which end the process if nobody listens; queries fail too
  pool?.on?.("error", ignore);
  pool?.on?.("connect", (client) => client.on?.("error", ignore));
  return { transaction: (work) => db.transaction(work), query: (tx, text, values) => query(sql, tx, text, values) };
}
