-- Selects whether a service still holds the lease, the database is a primary, and its server is in the same run.
-- $1 name of the lease, $2 holder, $3 installation, $4 run. Locks nothing. Index: primary key.
select exists (
         select from taskledger.lease l
          where l.name = $1::text and l.holder = $2::text and l.alive_until > clock_timestamp())
       and taskledger_internal.installation() = $3::text and taskledger_internal.server_run() = $4::text
       and not pg_is_in_recovery()
