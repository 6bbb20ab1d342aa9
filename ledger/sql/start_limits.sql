-- Reads limits of starts, with their use and the projector's count of the waiting tasks of their kinds.
-- $1 the name after which the list begins, '' for the first one; $2 most limits; $3 a kind, whose limits
-- are read, or ''; $4 the name of the only limit, or ''.
-- Locks nothing. Indexes: primary keys; reads the permits of each limit.
select l.name, l.kinds, l.weights, coalesce(l.per, ''), coalesce(l.max_running, -1), coalesce(l.rate, 0),
       coalesce(l.period_s, 0), coalesce(l.burst, 0), l.actor, (date_part('epoch', l.updated_at) * 1e6)::bigint,
       u.running,
       (select coalesce(sum(t.tasks), 0)::bigint
          from unnest(l.kinds) k(kind)
         cross join lateral (
           select c.tasks
             from taskledger_internal.task_totals c
            where c.kind = k.kind and c.state = 'available'
            order by c.n desc
            limit 1) t),
       (date_part('epoch', u.oldest_at) * 1e6)::bigint, (date_part('epoch', u.next_at) * 1e6)::bigint
  from (
    select n.name
      from taskledger.start_limits n
     where n.name > $1::text and ($3::text = '' or n.name in (
             select k.name from taskledger_internal.limited_kinds k where k.kind = $3::text))
       and ($4::text = '' or n.name = $4::text)
     order by n.name
     limit $2::bigint) n
 cross join lateral (select * from taskledger.start_limits s where s.name = n.name limit 1) l
 cross join lateral (select * from taskledger.limit_use s where s.name = n.name limit 1) u
 order by n.name
