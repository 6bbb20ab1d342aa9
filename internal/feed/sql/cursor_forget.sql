-- Removes the cursor of a reader: it begins again at the first event.
-- $1 reader. Locks its rows. Index: primary key.
delete from taskledger.cursor c
 where c.reader = $1::text
