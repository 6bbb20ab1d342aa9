-- The ids of all erasures. Locks nothing. Index: erasure_id.
select distinct x.id::text from taskledger.erasures x
