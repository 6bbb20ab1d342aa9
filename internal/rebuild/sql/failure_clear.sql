-- Records that no event stops a reader.
-- $1 reader. Locks the row. Index: primary key.
update taskledger.subscriber_state p
   set failures = 0, failing_since = null, failed_at = null, failed_position = null, failed_kind = null,
       failed_biz_id = null, failed_version = null, failure = null
 where p.reader = $1::text and p.failures > 0
