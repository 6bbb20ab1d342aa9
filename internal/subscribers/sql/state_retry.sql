-- Asks the program of a subscriber to handle the parked events of a task again. The transaction has recorded it.
-- $1 name, $2 kind, $3 biz_id. Returns their versions. Locks the rows. Index: primary key.
select r.version::text
  from taskledger_internal.retry_subscriber($1::text, $2::text, $3::text) r(version)
 order by r.version
