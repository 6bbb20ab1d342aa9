-- Selects the lease of the dispatcher: its holder, epoch and public key (hex), whether it is alive, whether the server
-- process of its connection has ended, since when its holder has it, when it ends or has ended, and why no dispatcher
-- has begun since.
-- Locks nothing. Index: primary key.
select l.holder, (l.detail->>'epoch')::bigint, l.detail->>'key', l.alive_until > clock_timestamp(),
       l.backend is not null and not exists (select from pg_catalog.pg_stat_activity a where a.pid = l.backend),
       (extract(epoch from l.since) * 1e6)::bigint, (extract(epoch from l.alive_until) * 1e6)::bigint,
       coalesce(l.detail->>'note', '')
  from taskledger.lease l
 where l.name = 'dispatcher'
