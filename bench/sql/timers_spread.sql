-- Makes the timers of a kind due at a steady rate. $1 kind, $2 timers a second, $3 milliseconds until
-- the first. Locks the kind's timers. Scans table timer twice: its index begins with due_at.
update taskledger.timer t
   set due_at = statement_timestamp() + $3::bigint * interval '1 millisecond' + r.i * interval '1 second' / $2::integer
  from (select x.ctid as address, row_number() over (order by x.biz_id) as i
          from taskledger.timer x
         where x.kind = $1::text) r
 where t.ctid = r.address
