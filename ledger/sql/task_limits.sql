-- Reads the limits that apply to a task, with their use under the task's value.
-- $1 kind, $2 biz_id. Locks nothing. Indexes: primary keys; reads the permits and tokens of each limit.
select l.name, v.value, coalesce(l.per, ''), coalesce(l.max_running, -1), coalesce(l.rate, 0), coalesce(l.period_s, 0),
       coalesce(l.burst, 0),
       (select count(*) from taskledger.permits p where p.name = l.name and p.value = v.value),
       array(
         select p.kind || '/' || p.biz_id
           from taskledger.permits p
          where p.name = l.name and p.value = v.value
          order by p.taken_at
          limit 5),
       (select (date_part('epoch', s.taken_at) * 1e6)::bigint + l.window_us
          from taskledger_internal.recent_starts s
         where s.name = l.name and s.value = v.value
         order by s.taken_at
        offset greatest(0, (
          select count(*) - l.burst + k.weight - 1
            from taskledger_internal.recent_starts c
           where c.name = l.name and c.value = v.value))
         limit (
          select (count(*) > l.burst - k.weight)::integer
            from taskledger_internal.recent_starts c
           where c.name = l.name and c.value = v.value))
  from taskledger_internal.limited_kinds k
  join taskledger.start_limits l on l.name = k.name
 cross join lateral taskledger_internal.limit_value(l.per, $1::text, $2::text) v(value)
 where k.kind = $1::text and v.value is not null
 order by l.name
