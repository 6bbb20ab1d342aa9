-- The ledger's installation. Locks nothing.
select taskledger_internal.installation()
