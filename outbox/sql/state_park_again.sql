-- Records that a parked event has failed again: its task stays parked.
-- $1 reader; the event: $2 kind, $3 biz_id, $4 version; $5 error. Locks the rows of the task. Index: primary key.
update taskledger.subscriber_parked p
   set state = 'parked',
       error = case when p.version = $4::bigint::integer then $5::text else '' end,
       failures = p.failures + case when p.version = $4::bigint::integer then 1 else 0 end
 where p.reader = $1::text and p.kind = $2::text and p.biz_id = $3::text and p.state <> 'discarded'
