-- Removes the events of a task that do not fold from the record.
-- $1 kind, $2 biz_id. Returns their versions. Locks the rows. Index: primary key.
select r.version from taskledger_internal.remove_illegal_events($1::text, $2::text) r(version)
