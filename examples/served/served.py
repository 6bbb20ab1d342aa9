# Prints the events of the served subscriber orders, with nats-py[nkeys]. orders.nk is its key from
# taskledger nats-config.

import asyncio, os, nats

async def main():
    nc = await nats.connect(os.environ["NATS_SERVER"], nkeys_seed="orders.nk")
    consumer = await nc.jetstream().pull_subscribe_bind("orders", "SUBSCRIBER_orders")
    while True:
        try:
            messages = await consumer.fetch(100, timeout=5)
        except nats.errors.TimeoutError:
            continue
        for m in messages:
            print(m.headers["ce-subject"], m.headers["ce-type"], m.data.decode(), flush=True)
            await m.ack()  # after the effect

asyncio.run(main())
