// The types as a program sees them; `make clients` compiles this file.
import pg from "pg";
import { Client, Worker, type Enqueued, type Job } from "taskledger";
import { database, enqueue } from "taskledger/pg";
import { runTask } from "taskledger/testing";

interface Mail {
  to: string;
}

export async function produce(db: pg.PoolClient): Promise<Enqueued> {
  // @ts-expect-error: there is no such option
  await enqueue(db, "mail.send", "A-1", { to: "ada" }, { runin: 5 });
  return enqueue(db, "mail.send", "A-1", { to: "ada" }, { runIn: 5, ifExists: "replace", checkArchive: true });
}

export const over = new Worker({ url: "http://127.0.0.1:8080" }).handle<Mail>("mail.send", async (job: Job<Mail>) => {
  await fetch("http://127.0.0.1/" + job.args.to, { signal: job.signal });
});

export const exactly = new Worker({ url: "http://127.0.0.1:8080", database: database(new pg.Pool()) })
  .handle<Mail>("mail.send", async (job, db) => {
    await db.query("select $1::text", [job.args.to]);
  });

export async function use(client: Client): Promise<number> {
  const tested = await runTask(over, { kind: "mail.send", args: { to: "ada" } });
  for await (const event of client.events({ kinds: ["mail.*"] })) return event.version;
  return (await client.wait<{ n: number }>("mail.send", tested.outcome)).n;
}
