-- Makes the table event append-only again. Locks as rebase_unlock.sql.
alter table taskledger.event enable trigger event_append_only
