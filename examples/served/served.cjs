// Prints the events of the served subscriber orders, with npm's @nats-io/transport-node and @nats-io/jetstream.
// orders.nk is its key from taskledger nats-config.

const fs = require("fs");
const { connect, nkeyAuthenticator } = require("@nats-io/transport-node");
const { jetstream } = require("@nats-io/jetstream");

(async () => {
  const nc = await connect({
    servers: process.env.NATS_SERVER, // "127.0.0.1:4222"
    // With the server of taskledger serve: user: "served", pass: "…", from taskledger url nats served.
    authenticator: nkeyAuthenticator(new TextEncoder().encode(fs.readFileSync("orders.nk", "utf8").trim())),
  });
  const consumer = await jetstream(nc).consumers.get("SUBSCRIBER_orders", "orders");
  for await (const m of await consumer.consume({ max_messages: 100 })) {
    console.log(m.headers.get("ce-subject"), m.headers.get("ce-type"), m.string());
    m.ack(); // after the effect
  }
})();
