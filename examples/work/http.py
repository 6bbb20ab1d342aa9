# A worker over HTTP with the standard library alone, and threads: a pattern for other languages. TASKLEDGER_URL is the
# address of taskledger serve, TASKLEDGER_TOKEN a token with the role worker. work is yours; after a lost process or a
# lost answer it may run again.

import json, os, random, secrets, signal, socket, sys, threading, time, urllib.error, urllib.request
from http.client import HTTPException

KIND, ME = "coupon.print", socket.gethostname()
SLOTS, SESSION = 4, secrets.token_hex(16)
URL, HEADERS = os.environ["TASKLEDGER_URL"] + "/v1/work", {
    "Authorization": "Bearer " + os.environ["TASKLEDGER_TOKEN"], "Content-Type": "application/json"}
held, changed, refusals = [], threading.Condition(), []  # held: tasks at work, each with its event "over"
unsent = {}  # outcomes by offer, until they are recorded, or 30 s after their refusal
beat_every, stopped = 10, threading.Event()

class Outcome(Exception):
    """Raised by work: a call and its body, such as Outcome("fail", error="no address", permanent=True)."""

    def __init__(self, verb, **body):
        self.verb, self.body = verb, body

class Over(Exception):
    """The attempt is over: its outcome does not count."""

class Refused(Exception):
    """The server refuses a call."""

def work(task, over):
    print("a coupon for", task["args"]["to"])
    return {"printed": True}

def call(verb, over, **body):
    """Repeat a call until the server has answered it. Raise Refused, or Over once over is set."""
    pause = 0.1
    while not over.is_set():
        wait = pause * random.uniform(0.5, 1.5)
        try:
            request = urllib.request.Request(URL + verb, json.dumps(body).encode(), HEADERS)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 429):
                raise Refused(error.code, json.loads(error.read()))
            wait = float(error.headers.get("Retry-After") or wait)
        except (OSError, HTTPException, ValueError):
            pass  # no answer
        pause = min(5, 2 * pause)
        over.wait(wait)
    raise Over

def offer_of(task):
    return tuple(task[name] for name in ("kind", "biz_id", "version", "available_at"))

def attempt_of(task):
    return {name: task[name] for name in ("kind", "biz_id", "attempt", "fence")}

def end(verb, task, **body):
    while True:
        sent = attempt_of(task)
        try:
            call(":" + verb, task["over"], **sent, **body)
            return unsent.pop(offer_of(task), None)
        except Refused as refused:
            if refused.args[1]["code"] != "attempt_ended":
                raise
            if task["fence"] == sent["fence"]:  # otherwise it was given again meanwhile, under this fence
                return

def attempt(task):
    offer = offer_of(task)
    try:
        try:
            verb, body = unsent.get(offer) or ("finish", {"result": work(task, task["over"])})
        except Outcome as outcome:
            verb, body = outcome.verb, outcome.body
        except Exception as error:
            verb, body = "fail", {"error": str(error) or "failed", "error_type": type(error).__name__}
        if not task["over"].is_set():
            unsent[offer] = verb, body  # if the offer comes again, it is not begun again
        try:
            end(verb, task, **body)
        except Refused as refused:
            if refused.args[0] not in (400, 413):
                raise
            end("fail", task, error=f"{verb} was refused: {refused}")
    except Over:
        pass
    except Refused as refused:  # another call would be refused too
        refusals.append(refused)
        os.kill(os.getpid(), signal.SIGTERM)
    with changed:
        held.remove(task)
        changed.notify_all()
    if offer in unsent:
        time.sleep(30)
        unsent.pop(offer, None)

def beat():
    while not stopped.wait(beat_every):
        fences = [task["fence"] for task in list(held)]
        try:
            ended = call(":heartbeat", stopped, session=SESSION, holds=fences)["ended"] if fences else []
        except (Over, Refused):
            continue
        for task in list(held):
            if any(e["fence"] == task["fence"] for e in ended):
                task["over"].set()

def ask():
    global beat_every
    received = ""
    while True:
        with changed:
            changed.wait_for(lambda: len(held) < SLOTS)
        answer = call("", stopped, worker=ME, session=SESSION, kinds=[KIND], limit=SLOTS - len(held), received=received)
        received, beat_every = answer["batch"], answer["heartbeat_every"]
        if not beats.ident:
            beats.start()
        for unknown in answer.get("unknown_kinds", []):
            print(unknown["detail"], file=sys.stderr)
        for task in answer["tasks"]:
            same = [t for t in list(held) if offer_of(t) == offer_of(task) and not t["over"].is_set()]
            if same:  # it is at work, and was given again, perhaps under a newer fence
                same[0].update(task)
            else:
                held.append(task | {"over": threading.Event()})
                threading.Thread(target=attempt, args=held[-1:], daemon=True).start()

def on_signals(handler):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)

on_signals(lambda *_: sys.exit())
beats = threading.Thread(target=beat, daemon=True)
try:
    ask()
except Refused as refused:
    refusals.append(refused)
except SystemExit:
    pass
on_signals(signal.SIG_DFL)  # a second one ends the process
with changed:
    changed.wait_for(lambda: not held, 10)
fences = [task["fence"] for task in list(held)]
for task in list(held):
    task["over"].set()
late = threading.Timer(5, stopped.set)
late.start()
try:
    for holds in [{"holds": fences}, {}] if fences else [{}]:
        call(":release", stopped, session=SESSION, **holds)
except Refused as refused:
    refusals.append(refused)
except Over:
    pass  # the server is unavailable: others get the tasks after 30 s
stopped.set()
late.cancel()
sys.exit(str(refusals[0]) if refusals else 0)
