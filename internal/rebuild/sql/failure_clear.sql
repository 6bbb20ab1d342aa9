-- Records that no event stops a projection.
-- $1 projection. Locks the row. Index: primary key.
update taskledger.projection p
   set failures = 0, failing_since = null, failed_at = null, failed_position = null, failed_kind = null,
       failed_biz_id = null, failed_version = null, failure = null
 where p.name = $1::text and p.failures > 0
