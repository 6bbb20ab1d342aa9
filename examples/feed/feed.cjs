// Writes a mail for each coupon that was sent, exactly once each, with psql. With the package pg, both calls are
// statements of one client. DATABASE_URL is the address of a login with the role subscriber.

const { execFileSync } = require("child_process");

function sql(text, variables = {}) {
  const args = [process.env.DATABASE_URL, "-XqAt", "-v", "ON_ERROR_STOP=1"];
  for (const [name, value] of Object.entries(variables)) args.push("-v", `${name}=${value}`);
  return execFileSync("psql", args, { input: text, encoding: "utf8", maxBuffer: 64 << 20 }).split("\n").filter(Boolean);
}

(async () => {
  for (;;) {
    const page = sql("select row_to_json(f) from taskledger.read_feed('mails', 100) f;").map((row) => JSON.parse(row));
    if (page.length === 0) {
      if (process.env.ONCE) return;
      await new Promise((resolve) => setTimeout(resolve, 100));
      continue;
    }
    const last = page[page.length - 1];
    const sent = page.filter((e) => e.type === "succeeded" && e.kind === "coupon.send").map((e) => e.biz_id);
    sql(`begin;
         insert into mail (order_no) select json_array_elements_text(:'sent'::json);
         select taskledger.advance_feed('mails', :'page', :position);
         commit;`, { sent: JSON.stringify(sent), page: last.page, position: last.position });
  }
})();
