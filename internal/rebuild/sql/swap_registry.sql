-- Records that new tables of a reader are in use.
-- $1 reader, $2 version, $3 shape, $4 tables: a text array literal, $5 1 if it parks events, $6 number of events.
-- Locks the row. Index: primary key.
update taskledger.subscriber_state p
   set version = $2::bigint::integer, shape = $3::text, tables = $4::text::text[], parks = $5::bigint = 1,
       since = clock_timestamp(), failures = 0, failing_since = null, failed_at = null, failed_position = null,
       failed_kind = null, failed_biz_id = null, failed_version = null, failure = null,
       wanted = case when p.wanted = 'rebuild' then null else p.wanted end,
       work = 'rebuild', work_at = clock_timestamp(), work_done = $6::bigint, work_total = $6::bigint,
       work_result = '{}'
 where p.reader = $1::text
