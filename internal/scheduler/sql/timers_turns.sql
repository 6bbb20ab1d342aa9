-- Timers that are due, at most $4 of each kind, so that many of one kind delay no other.
-- $1 moment at which to start: no timer is due before it; $2 kind after which to begin, $3 maximum number of kinds and
-- of rows, $4 maximum number of timers of a kind; $5 keys (kind/biz_id) to leave out (text array literal).
-- Returns in the order of the kinds: kind, and biz_id and due_at of a timer, or nulls for a kind without a due one.
-- Locks nothing. Index: timer_turn, two descents for each kind; the order by kind keeps the planner on it. Entries of
-- removed timers that were due before $1 are stepped over within the index.
with recursive clock as materialized (
  select clock_timestamp() as at
), kinds(kind, due_at, n) as (
  (select t.kind, t.due_at, 1
     from taskledger.timers t
    where t.reason <> 'after' and (t.kind, t.due_at) > ($2::text, timestamptz 'infinity')
      and t.due_at >= (select $1::text::timestamptz)
    order by t.kind, t.due_at
    limit 1)
  union all
  select next.kind, next.due_at, k.n + 1
    from kinds k
   cross join lateral (
     select t.kind, t.due_at
       from taskledger.timers t
      where t.reason <> 'after' and (t.kind, t.due_at) > (k.kind, timestamptz 'infinity')
        and t.due_at >= (select $1::text::timestamptz)
      order by t.kind, t.due_at
      limit 1) next
   where k.n < $3::integer
)
select k.kind, d.biz_id, (extract(epoch from d.due_at) * 1e6)::bigint
  from kinds k
 cross join clock c
  left join lateral (
    select t.kind, t.biz_id, t.due_at
      from taskledger.timers t
     where t.reason <> 'after' and k.due_at <= c.at
       and (t.kind, t.due_at) >= (k.kind, greatest((select $1::text::timestamptz), '1970-01-01 00:00:00+00'))
       and t.kind || '/' || t.biz_id not in (select unnest((select $5::text::text[])))
     order by t.kind, t.due_at
     limit $4::integer) d on d.kind = k.kind and d.due_at <= c.at
 order by k.n, d.due_at
 limit $3::integer
