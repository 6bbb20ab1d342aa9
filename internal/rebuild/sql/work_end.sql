-- Records the result of a rebuild or a verification, which is no longer asked for.
-- $1 reader, $2 rebuild or verify, $3 result: JSON text. Locks the row. Index: primary key.
update taskledger.subscriber_state p
   set work = $2::text, work_at = clock_timestamp(), work_result = $3::text::json,
       wanted = case when p.wanted = $2::text then null else p.wanted end
 where p.reader = $1::text
