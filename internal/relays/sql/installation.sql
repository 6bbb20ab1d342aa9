-- Selects the id of this installation. Locks nothing. Index: primary key of setting.
select taskledger_internal.installation()
