"""A shop: an order and its coupon's task in one transaction, a worker that sends the coupon exactly once, the result."""

import os
import threading

import psycopg
import taskledger
from taskledger.psycopg import Database, enqueue

URL, TOKEN, DATABASE = (os.environ[name] for name in ("TASKLEDGER_URL", "TASKLEDGER_TOKEN", "DATABASE_URL"))
worker = taskledger.Worker(URL, TOKEN, slots=4, database=Database(DATABASE))


@worker.handle("shop.coupon", retry={"ladder": [1, 60]})
def send_coupon(job: taskledger.Job, db: psycopg.Connection) -> dict:
    if job.args["cents"] <= 0:
        raise taskledger.Permanent(f"a coupon of {job.args['cents']} cents")
    db.execute("insert into shop_coupon (order_no, cents) values (%s, %s)", (job.biz_id, job.args["cents"]))
    return {"code": f"AUTUMN-{job.biz_id}"}


def place_order(number: str, cents: int) -> None:
    with psycopg.connect(DATABASE) as db:
        db.execute("insert into shop_order (number) values (%s)", (number,))
        enqueue(db, "shop.coupon", number, {"cents": cents}, tags=["autumn"])


def main() -> None:
    with psycopg.connect(DATABASE) as db:
        db.execute("select pg_advisory_xact_lock(hashtext('shop'))")  # two processes may start at once
        db.execute("create table if not exists shop_order (number text primary key)")
        db.execute("create table if not exists shop_coupon (order_no text primary key, cents integer)")
    threading.Thread(target=worker.run).start()
    client = taskledger.Client(URL, TOKEN)
    try:
        place_order("P-1", 500)
        print(client.wait("shop.coupon", "P-1", timeout=60))
        place_order("P-2", 0)
        try:
            client.wait("shop.coupon", "P-2", timeout=60)
        except taskledger.TaskFailed as failed:
            print(failed)
        for event in client.events(start_after=0, kinds=["shop.*"], types=["succeeded"]):
            print(event.type, event.biz_id)
            break
    finally:
        worker.stop()


if __name__ == "__main__":
    main()
