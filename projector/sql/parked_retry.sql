-- Asks the program that runs a projection to apply the parked events of a task again. The transaction has recorded it.
-- $1 projection, $2 kind, $3 biz_id. Returns their versions. Locks the rows. Index: primary key.
select r.version::text
  from taskledger_internal.retry_projection($1::text, $2::text, $3::text) r(version)
 order by r.version
