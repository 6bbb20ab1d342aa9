-- Skips the event of a task that has failed, parked or as that which stops the projection. Those that wait for it are
-- to be applied. The transaction has recorded it.
-- $1 projection, $2 kind, $3 biz_id. Returns the versions that are skipped. Locks the rows. Indexes: primary keys.
select r.version::text from taskledger.skip_projection($1::text, $2::text, $3::text) r(version) order by r.version
