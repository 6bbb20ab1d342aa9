/** Tasks to be enqueued: the SQL function taskledger.enqueue, and the body of POST /v1/tasks. */

import { carrier } from "./telemetry.js";

export interface Key {
  kind: string;
  bizId: string;
}

/** Options of enqueue. Durations are in seconds. */
export interface EnqueueOptions {
  runAt?: Date | undefined;
  runIn?: number | undefined;
  /** The deadline of the first attempt. */
  startBy?: Date | undefined;
  /** The deadline of the task. */
  finishBy?: Date | undefined;
  /** Tasks that must have succeeded before. */
  after?: Key[] | undefined;
  /** What happens if one of after is dead, cancelled, expired or discarded. Default: cancel. */
  otherwise?: "cancel" | "run" | "wait" | undefined;
  /** 1 urgent, 2 high, 3 normal, 4 low. Default: 3. */
  priority?: number | undefined;
  /** What happens if the task exists. Default: same, which throws OtherArgs if its args differ. */
  ifExists?: "same" | "ignore" | "replace" | "rerun" | undefined;
  /** Whether an archived task is answered at once, as an existing one. Default: a new task is, and does not run. */
  checkArchive?: boolean | undefined;
  tags?: string[] | undefined;
  /** The task's own retry policy, such as {ladder: [60, 300]}. */
  retry?: object | undefined;
  dataVersion?: number | undefined;
  shard?: number | undefined;
  /** Only in SQL: over HTTP it is the token's name. */
  actor?: string | undefined;
}

/** The task after an enqueue. isNew is false if it existed, and nothing was written. */
export interface Enqueued {
  isNew: boolean;
  state: string;
  version: number;
  sameArgs: boolean;
  /** Of the event with the args; 0 of an archived task. */
  position: number;
  /** Whether the task was archived: only with checkArchive. Its args are not compared. */
  archived: boolean;
}

/** The task exists with other args. Nothing was written: choose another biz_id, or ifExists. */
export class OtherArgs extends Error {
  override readonly name = "OtherArgs";
}

const casts: Record<string, string> = {
  runAt: "timestamptz", startBy: "timestamptz", finishBy: "timestamptz", runIn: "interval", priority: "integer",
  dataVersion: "integer", shard: "integer", ifExists: "text", checkArchive: "boolean", tags: "", retry: "", after: "json", otherwise: "",
  actor: "text",
};

/** The members of a task as JSON, without those that are not set. */
function members(kind: string, bizId: string, args: unknown, o: EnqueueOptions): Record<string, unknown> {
  const unknown = Object.keys(o).find((name) => !(name in casts));
  if (unknown) throw new TypeError(`unknown option ${unknown}, the options are ${Object.keys(casts).join(", ")}`);
  const { after, otherwise, ...rest } = o;
  const found: Record<string, unknown> = { kind, biz_id: bizId, args };
  if (after) found.after = { keys: after.map((k) => ({ kind: k.kind, biz_id: k.bizId })), otherwise };
  for (const [name, value] of Object.entries(rest)) {
    if (value instanceof Date && Number.isNaN(value.getTime())) throw new TypeError(`${name} is an invalid Date`);
    if (value !== undefined && value !== null) found[snake(name)] = value instanceof Date ? value.toISOString() : value;
  }
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}

const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** The body of POST /v1/tasks. */
export function taskBody(kind: string, bizId: string, args: unknown, o: EnqueueOptions): Record<string, unknown> {
  if (o.actor !== undefined) throw new TypeError("actor cannot be set over HTTP: it is the token's name");
  return members(kind, bizId, args, o);
}

/** A statement with $1, $2, ... Each appears once, in order. All values are text. */
export interface Statement {
  text: string;
  values: string[];
}

/** Runs a statement, and returns its rows as objects. */
export type Query = (text: string, values: string[]) => Promise<Record<string, unknown>[]>;

/** A call of an SQL function. Arguments are pairs of value and type. */
export function call(name: string, columns: string, args: Record<string, [value: string, type: string]>): Statement {
  const named = Object.entries(args).map(([arg, [, type]], i) => `${arg} => cast(cast($${i + 1} as text) as ${type})`);
  const source = `taskledger.${name}(${named.join(", ")})`;
  return {
    text: columns ? `select ${columns} from ${source}` : `select cast(${source} as text) as answer`,
    values: Object.values(args).map(([value]) => value),
  };
}

/** The call of taskledger.enqueue. */
export function enqueueStatement(kind: string, bizId: string, args?: unknown, o: EnqueueOptions = {}): Statement {
  const { tags, retry, ...task } = members(kind, bizId, args, o);
  const meta = { ...carrier(), ...(tags ? { tags } : {}), ...(retry ? { retry } : {}) };
  const values: Record<string, [string, string]> = {};
  for (const [name, value] of Object.entries({ ...task, ...(Object.keys(meta).length > 0 ? { meta } : {}) })) {
    const camel = name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
    const type = name === "args" || name === "meta" ? "json" : casts[camel] || "text";
    values[name] = [type === "json" ? JSON.stringify(value)
      : type === "interval" ? `${Number(value).toFixed(6)} seconds` : String(value), type];
  }
  const columns = "is_new, cast(state as text) as state, version, same_args, cast(position as text) as position";
  return call("enqueue", columns, values);
}

/** Enqueues a task by a query in the caller's transaction: the task exists if and only if that commits. */
export async function enqueueBy(
  query: Query, kind: string, bizId: string, args?: unknown, o: EnqueueOptions = {},
): Promise<Enqueued> {
  const { text, values } = enqueueStatement(kind, bizId, args, o);
  const [row] = await query(text, values);
  if (!row) throw new Error("taskledger.enqueue returned no row");
  const task: Enqueued = {
    isNew: Boolean(row.is_new), state: String(row.state), version: Number(row.version),
    sameArgs: Boolean(row.same_args), position: Number(row.position),
    archived: row.position === null,
  };
  if (!task.sameArgs && o.ifExists !== "ignore") {
    throw new OtherArgs(`${kind}/${bizId} exists with other args, and is ${task.state}`);
  }
  return task;
}
