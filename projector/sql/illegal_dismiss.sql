-- Removes the events of a task that do not fold from the record.
-- $1 kind, $2 biz_id. Returns their versions. Locks the rows. Index: primary key.
delete from taskledger.illegal_event i
 where i.kind = $1::text and i.biz_id = $2::text
returning i.version
