# Prints the results of coupon.send, with the standard library alone, without TLS and reconnects. NATS_URL is what
# taskledger url nats subscriber prints.

import json, os, socket, urllib.parse

url = urllib.parse.urlsplit(os.environ["NATS_URL"])  # taskledger url nats subscriber
connection = socket.create_connection((url.hostname, url.port))
received = connection.makefile("rb")

def send(text):
    connection.sendall(text.encode() + b"\r\n")

def publish(subject, body, answer=""):
    send(f"PUB {subject} {answer} {len(body.encode())}\r\n{body}")

def messages():
    """Yields each message's acknowledgement subject, status, headers and body."""
    while line := received.readline():
        words = line.decode().split()
        if words[0] == "PING":
            send("PONG")
        elif words[0] == "-ERR":
            raise ConnectionError(line.decode().strip())
        elif words[0] in ("MSG", "HMSG"):  # subject, number of the subscription, [answer], [bytes of headers], bytes
            text = received.read(int(words[-1]) + 2)[:-2]
            head = int(words[-2]) if words[0] == "HMSG" else 0
            status, *fields = text[:head].decode().strip().split("\r\n")
            headers = dict(field.split(":", 1) for field in fields)
            headers = {name.lower(): urllib.parse.unquote(value.strip()) for name, value in headers.items()}
            has_answer = len(words) == (6 if words[0] == "HMSG" else 5)
            yield words[3] if has_answer else "", status, headers, text[head:]
    raise ConnectionError("the server closed the connection")

received.readline()  # INFO
send("CONNECT " + json.dumps({"user": url.username, "pass": url.password, "verbose": False, "pedantic": False,
                              "headers": True, "no_responders": True}))
inbox = "_INBOX." + os.urandom(12).hex()
send(f"SUB {inbox} 1")

def pull():
    publish("$JS.subscriber.API.CONSUMER.MSG.NEXT.LEDGER.subscriber",
            json.dumps({"batch": 1, "expires": 20_000_000_000}), inbox)  # waits 20 s

pull()
for ack, status, headers, body in messages():
    if "ce-id" in headers:
        task = urllib.parse.parse_qs(headers["ce-task"])
        print(headers["ce-subject"], task["version"][0], json.loads(body)["result"]["mail"], flush=True)
        publish(ack, "+ACK")  # after the effect
    elif " 404" not in status and " 408" not in status:  # without a message in 20 s
        raise ConnectionError(status)
    pull()
