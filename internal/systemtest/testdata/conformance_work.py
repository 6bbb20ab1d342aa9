begun = {}

def work(task, over):
    args = task["args"]
    begun[task["biz_id"]] = begun.get(task["biz_id"], 0) + 1
    match args["do"]:
        case "echo":
            return {name: task[name] for name in ("kind", "biz_id", "attempt", "args")}
        case "count":
            return begun[task["biz_id"]]
        case "sleep":
            over.wait(args["seconds"])
        case "large":
            return "x" * args["bytes"]
        case "fail":
            raise Outcome("fail", **{name: args[name] for name in ("error", "permanent", "retry_in") if name in args})
        case "snooze":
            raise Outcome("snooze", **{"in": args["seconds"]})
        case "progress":
            call(":progress", over, **attempt_of(task), progress=args["value"])
    return args["value"]
