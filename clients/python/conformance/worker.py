"""The worker that internal/conformance checks."""

import collections
import os

import taskledger

worker = taskledger.Worker(os.environ["TASKLEDGER_URL"], os.environ["TASKLEDGER_TOKEN"], slots=4, shutdown_timeout=3)
begun: collections.Counter[str] = collections.Counter()


@worker.handle("conformance.task")
def run(job: taskledger.Job) -> object:
    begun[job.biz_id] += 1
    args = job.args
    match args["do"]:
        case "echo":
            return {"kind": job.kind, "biz_id": job.biz_id, "attempt": job.attempt, "args": args}
        case "count":
            return begun[job.biz_id]
        case "sleep":
            job.cancelled.wait(args["seconds"])
            job.check()
        case "large":
            return "x" * args["bytes"]
        case "fail":
            if args.get("permanent"):
                raise taskledger.Permanent(args["error"])
            raise taskledger.Retry(args["error"], retry_in=args.get("retry_in"))
        case "snooze":
            raise taskledger.Snooze(args["seconds"])
        case "progress":
            job.progress(args["value"])
    return args["value"]


worker.run()
