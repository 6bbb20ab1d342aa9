-- Selects whether the database is a standby, and the name of an enabled subscription that writes events, '' for none.
-- Locks nothing.
select pg_is_in_recovery(),
       coalesce((select s.subname::text
                   from pg_catalog.pg_subscription s
                   join pg_catalog.pg_subscription_rel r on r.srsubid = s.oid
                  where r.srrelid = 'taskledger.event'::regclass and s.subenabled
                  limit 1), '')
