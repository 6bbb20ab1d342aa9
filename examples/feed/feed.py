# Writes a mail for each coupon that was sent, exactly once each, with the standard library and psql. With psycopg, both
# calls are statements on one connection. DATABASE_URL is the address of a login with the role subscriber.

import json, os, subprocess, time

def sql(text, **variables):
    command = ["psql", os.environ["DATABASE_URL"], "-XqAt", "-v", "ON_ERROR_STOP=1"]
    for name, value in variables.items():
        command += ["-v", f"{name}={value}"]
    return subprocess.run(command, input=text, text=True, stdout=subprocess.PIPE, check=True).stdout.splitlines()

while True:
    page = [json.loads(row) for row in sql("select row_to_json(f) from taskledger.read_feed('mails', 100) f;")]
    if not page:
        if "ONCE" in os.environ:
            break
        time.sleep(0.1)
        continue
    sent = [e["biz_id"] for e in page if e["type"] == "succeeded" and e["kind"] == "coupon.send"]
    sql("""begin;
           insert into mail (order_no) select json_array_elements_text(:'sent'::json);
           select taskledger.advance_feed('mails', :'page', :position);
           commit;""", sent=json.dumps(sent), page=page[-1]["page"], position=page[-1]["position"])
