-- The ledger's installation. Locks nothing.
select taskledger.installation()
