-- Selects the receivers of webhooks that get no events, and why: gone (paused after an answer 410), deleted (a process
-- serves the receiver, and its subscriber is missing), unserved (no process serves it) or stuck; since when, null:
-- unknown. A receiver without a process and a subscriber was removed: its pause remains, but is not a fault.
-- $1 threshold in milliseconds; $2 most receivers.
-- Locks nothing. Indexes: as the views subscribers and workers, few rows of each; of paused_kinds all rows; as
-- feed_lag, one event of each receiver; the primary key of task_count.
with served as materialized (
  select substr(k.kind, 20) as name, min(w.since) as since
    from taskledger.workers w
   cross join lateral unnest(taskledger_internal.lease_kinds(w.detail)) k(kind)
   where w.alive_ms > 0 and w.detail::text like '%taskledger.webhook.%' -- most leases need not be parsed
     and starts_with(k.kind, 'taskledger.webhook.')
   group by k.kind
), subscribed as materialized (
  select substr(s.name, 9) as name, s.is_paused, s.moved_at from taskledger.subscribers s
   where starts_with(s.name, 'webhook-')
), gone as materialized (
  select substr(p.kind, 20) as name, p.since from taskledger.paused_kinds p
   where starts_with(p.kind, 'taskledger.webhook.') and p.reason = 'the receiver has answered 410 Gone'
), late as (
  select s.name, l.oldest
    from subscribed s
   cross join lateral taskledger_internal.feed_lag('subscriber/webhook-' || s.name, 1) l
   where not s.is_paused and greatest(l.oldest, s.moved_at) < clock_timestamp() - $1::bigint * interval '1 ms'
     and (s.name in (select v.name from served v)
          or exists (select from taskledger_internal.task_totals t where t.kind = 'taskledger.webhook.' || s.name))
), found as (
  select g.name, 'gone' as why, g.since from gone g
   where g.name in (select s.name from subscribed s union all select v.name from served v)
  union all
  select v.name, 'deleted', null from served v
   where v.name not in (select s.name from subscribed s)
     and v.since < clock_timestamp() - $1::bigint * interval '1 ms' -- the subscriber of a new one is made soon
  union all
  select l.name, case when l.name in (select v.name from served v) then 'stuck' else 'unserved' end, l.oldest
    from late l
)
select f.name, f.why, (extract(epoch from f.since) * 1e6)::bigint
  from found f
 order by f.name, f.why
 limit $2::bigint
