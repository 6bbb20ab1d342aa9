-- Discards the failed event of a task, whether it is parked or stops the subscriber. Events that wait for it are to be
-- handled. The transaction has recorded it.
-- $1 name, $2 kind, $3 biz_id. Returns the versions that are discarded. Locks the rows. Indexes: primary keys.
select r.version::text
  from taskledger_internal.discard_subscriber($1::text, $2::text, $3::text) r(version)
 order by r.version
