# A worker by the SQL functions, with psycopg 3. DATABASE_URL is the address of a login with the role worker. If it
# loses the database, it ends, and another worker takes over its task once its lease has expired.

import os, socket, threading, time
import psycopg

KIND, ME = "coupon.send", f"{socket.gethostname()}-{os.getpid()}"

def connect():
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)

def heartbeat(db):
    db.execute("select taskledger.heartbeat(%s, %s)", (ME, [KIND]))

def keep_lease():
    with connect() as db:
        while True:
            time.sleep(10)
            heartbeat(db)

def work(db, biz_id, version, args):
    try:
        with db.transaction():
            db.execute("insert into coupon_sent (order_no, cents) values (%s, %s)", (biz_id, args["cents"]))
            db.execute("select taskledger.finish(%s, %s, %s)", (KIND, biz_id, version))
    except Exception as error:
        if getattr(error, "sqlstate", "") != "TL001":  # otherwise it is another worker's
            db.execute("select taskledger.fail(%s, %s, %s, %s, %s)",
                       (KIND, biz_id, version, str(error), type(error).__name__))

with connect() as db:
    heartbeat(db)
    threading.Thread(target=keep_lease, daemon=True).start()
    while True:
        task = db.execute("select biz_id, version, args from taskledger.claim_next(%s, %s)", (KIND, ME)).fetchone()
        if task is None:
            time.sleep(1)  # no task waits
        else:
            work(db, *task)
