const begun = new Map();

async function work(task, over) {
  const { args, biz_id, kind, attempt } = task;
  begun.set(biz_id, (begun.get(biz_id) ?? 0) + 1);
  switch (args.do) {
    case "echo": return { kind, biz_id, attempt, args };
    case "count": return begun.get(biz_id);
    case "sleep": await sleep(args.seconds * 1000, undefined, { signal: over }); break;
    case "large": return "x".repeat(args.bytes);
    case "fail": {
      const { error, permanent, retry_in } = args;
      throw new Outcome("fail", { error, permanent, retry_in });
    }
    case "snooze": throw new Outcome("snooze", { in: args.seconds });
    case "progress": await call(":progress", { ...attemptOf(task), progress: args.value }, over);
  }
  return args.value;
}
