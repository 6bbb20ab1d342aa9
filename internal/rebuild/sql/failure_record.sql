-- Records that an event stops a reader, and counts how often in a row.
-- $1 reader; the event: $2 position, $3 kind, $4 biz_id, $5 version; $6 error. Locks the row. Index: primary key.
update taskledger.subscriber_state p
   set failures = case when p.failed_position = $2::bigint then p.failures else 0 end + 1,
       failing_since = case when p.failed_position = $2::bigint then p.failing_since else clock_timestamp() end,
       failed_at = clock_timestamp(), failed_position = $2::bigint, failed_kind = $3::text, failed_biz_id = $4::text,
       failed_version = $5::bigint::integer, failure = $6::text
 where p.reader = $1::text
