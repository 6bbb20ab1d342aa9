-- Selects the lease of the dispatcher: its holder, epoch and public key (hex), whether it is alive, and whether the
-- server process of its connection has ended.
-- Locks nothing. Index: primary key.
select l.holder, (l.detail->>'epoch')::bigint, l.detail->>'key', l.alive_until > clock_timestamp(),
       l.backend is not null and not exists (select from pg_catalog.pg_stat_activity a where a.pid = l.backend)
  from taskledger.lease l
 where l.name = 'dispatcher'
