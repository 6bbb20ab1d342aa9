/** Knex: enqueue in the caller's transaction, and a database for exactly once. */

import { enqueueBy, type EnqueueOptions, type Enqueued } from "./enqueue.js";
import type { Database } from "./exactly.js";

/** The part of Knex.Transaction that is used. */
export interface KnexTransaction {
  raw(text: string, values: string[]): PromiseLike<{ rows: Record<string, unknown>[] }>;
}

const query = async (trx: KnexTransaction, text: string, values: string[]) =>
  (await trx.raw(text.replace(/\$\d+/g, "?"), values)).rows;

/** Enqueues a task in a transaction of Knex. */
export function enqueue(
  trx: KnexTransaction, kind: string, bizId: string, args?: unknown, options?: EnqueueOptions,
): Promise<Enqueued> {
  return enqueueBy((text, values) => query(trx, text, values), kind, bizId, args, options);
}

/** Transactions of a worker. Handlers get the transaction of Knex. */
export function database<T extends KnexTransaction>(
  knex: { transaction<R>(work: (trx: T) => Promise<R>): Promise<R> },
): Database<T> {
  return { transaction: (work) => knex.transaction(work), query };
}
