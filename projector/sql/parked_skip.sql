-- Skips the failed event of a task, whether it is parked or stops the projection. Events that wait for it are to be
-- applied. The transaction has recorded it.
-- $1 projection, $2 kind, $3 biz_id. Returns the versions that are skipped. Locks the rows. Indexes: primary keys.
select r.version::text
  from taskledger_internal.skip_projection($1::text, $2::text, $3::text) r(version)
 order by r.version
