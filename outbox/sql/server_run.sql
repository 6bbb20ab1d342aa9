-- Selects the id of this installation, and the difference between this database and a physical copy of it.
-- Locks nothing. Index: primary key of setting.
select taskledger_internal.installation(), taskledger_internal.server_run()
