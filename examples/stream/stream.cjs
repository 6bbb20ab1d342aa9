// Prints the results of coupon.send, with npm's @nats-io/transport-node and @nats-io/jetstream, which take user and
// password, or token:, as options. NATS_URL is what taskledger url nats subscriber prints.

const { connect } = require("@nats-io/transport-node");
const { jetstream } = require("@nats-io/jetstream");

(async () => {
  const url = new URL(process.env.NATS_URL.replace("nats:", "http:")); // taskledger url nats subscriber
  const nc = await connect({ servers: url.host, user: url.username, pass: url.password });
  const consumer = await jetstream(nc, { domain: "subscriber" }).consumers.get("LEDGER", "subscriber");
  for await (const m of await consumer.consume({ max_messages: 100 })) {
    const key = decodeURIComponent(m.headers.get("ce-subject"));
    const task = new URLSearchParams(m.headers.get("ce-task"));
    console.log(key, task.get("version"), m.json().result.mail);
    m.ack(); // after the effect
  }
})();
