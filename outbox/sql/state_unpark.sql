-- Removes the parked events of a task from the list of a subscriber, or all of its list.
-- $1 reader; $2 kind and $3 biz_id of the task, null for all. Returns their versions. Locks the rows. Index:
-- primary key.
select r.version::text from taskledger_internal.remove_subscriber_parked($1::text, $2::text, $3::text) r(version)
