-- Records the progress of a rebuild or a verification.
-- $1 projection, $2 rebuild or verify, $3 events done, $4 events in all. Locks the row. Index: primary key.
update taskledger.projection p
   set work = $2::text, work_at = clock_timestamp(), work_done = $3::bigint, work_total = $4::bigint, work_result = null
 where p.name = $1::text
