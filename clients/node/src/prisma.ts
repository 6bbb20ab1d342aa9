/** Prisma: enqueue in the caller's interactive transaction, and a database for exactly once. */

import { enqueueBy, type EnqueueOptions, type Enqueued } from "./enqueue.js";
import type { Database } from "./exactly.js";

/** The part of Prisma.TransactionClient that is used. */
export interface PrismaTransaction {
  $queryRawUnsafe(text: string, ...values: string[]): Promise<unknown>;
}

const query = async (tx: PrismaTransaction, text: string, values: string[]) =>
  (await tx.$queryRawUnsafe(text, ...values)) as Record<string, unknown>[];

/** Enqueues a task in the transaction of prisma.$transaction(async tx => ...). */
export function enqueue(
  tx: PrismaTransaction, kind: string, bizId: string, args?: unknown, options?: EnqueueOptions,
): Promise<Enqueued> {
  return enqueueBy((text, values) => query(tx, text, values), kind, bizId, args, options);
}

/** Transactions of a worker. timeout is how many seconds one may take. Default: 900. */
export function database<T extends PrismaTransaction>(
  prisma: { $transaction<R>(work: (tx: T) => Promise<R>, options?: object): Promise<R> }, timeout = 900,
): Database<T> {
  return { transaction: (work) => prisma.$transaction(work, { timeout: timeout * 1000, maxWait: 30_000 }), query };
}
