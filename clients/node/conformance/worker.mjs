// The worker that internal/conformance checks.
import { setTimeout as sleep } from "node:timers/promises";
import { Permanent, Retry, Snooze, Worker } from "taskledger";

const { TASKLEDGER_URL: url, TASKLEDGER_TOKEN: token } = process.env;
const worker = new Worker({ url, token, slots: 4, shutdownTimeout: 3 });
const begun = new Map();

worker.handle("conformance.task", async (job) => {
  const { args, bizId: biz_id, kind, attempt, signal } = job;
  begun.set(biz_id, (begun.get(biz_id) ?? 0) + 1);
  switch (args.do) {
    case "echo": return { kind, biz_id, attempt, args };
    case "count": return begun.get(biz_id);
    case "sleep": await sleep(args.seconds * 1000, undefined, { signal }); break;
    case "large": return "x".repeat(args.bytes);
    case "fail":
      if (args.permanent) throw new Permanent(args.error);
      throw new Retry(args.error, args.retry_in === undefined ? {} : { retryIn: args.retry_in });
    case "snooze": throw new Snooze(args.seconds);
    case "progress": await job.progress(args.value);
  }
  return args.value;
});
await worker.run();
