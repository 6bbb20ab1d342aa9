-- Selects the id of the ledger's installation. Locks nothing. Index: primary key.
select taskledger_internal.installation()
