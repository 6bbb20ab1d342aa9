-- Records the progress of a rebuild or a verification.
-- $1 reader, $2 rebuild or verify, $3 events done, $4 events in all. Locks the row. Index: primary key.
update taskledger.subscriber_state p
   set work = $2::text, work_at = clock_timestamp(), work_done = $3::bigint, work_total = $4::bigint, work_result = null
 where p.reader = $1::text
