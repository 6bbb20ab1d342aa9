-- Selects the paused kinds, the limits of starts and the weights of partitions (JSON), and next to them the live
-- workers: for how many milliseconds each lives after a renewal, and the digest of its lease's detail. The columns
-- after that are read only if $1 does not contain the digest, because to check 1,000 kinds takes 30 ms: whether the
-- detail is valid, the worker's public key (hex; '' if it claims tasks itself), how many tasks it may hold, its kinds
-- and shards. Without workers, one row with '' as worker. $1 a text array literal. Locks nothing.
-- Reads small tables as a whole.
select p.kinds, c.limits, v.weights, coalesce(w.worker, ''), coalesce(w.term_ms, 0), coalesce(w.digest, ''),
       coalesce(d.kinds is not null, false), coalesce(d.key, ''), coalesce(d.capacity, 0), coalesce(d.kinds, '{}'),
       coalesce(d.shards, '')
  from (select coalesce(array_agg(k.kind order by k.kind), '{}') as kinds from taskledger.paused_kinds k) p
 cross join (
    select coalesce(json_agg(json_build_object(
             'name', l.name, 'kinds', l.kinds, 'weights', l.weights, 'per', coalesce(l.per, ''), 'max_running',
             coalesce(l.max_running, -1), 'burst', coalesce(l.burst, 0), 'window_us', coalesce(l.window_us, 0))
             order by l.name)::text, '') as limits
      from taskledger.start_limits l) c
 cross join (
    select coalesce(json_object_agg(w.partition, w.weight)::text, '') as weights
      from taskledger_internal.partition_weights w) v
  left join (
    select l.holder as worker, (extract(epoch from l.term) * 1000)::bigint as term_ms, l.detail,
           encode(sha256(convert_to(l.detail::text, 'UTF8')), 'hex') as digest
      from taskledger.lease l
     where l.name like 'worker/%' and l.since between '1970-01-01 00:00:00+00' and '9999-01-01 00:00:00+00'
       and l.alive_until > clock_timestamp()
    offset 0 -- a digest is computed once
  ) w on true
  left join lateral (
    select w.detail->>'key' as key,
           case when w.detail->>'capacity' ~ '^[0-9]{1,6}$' then w.detail->>'capacity' else '0' end::integer
             as capacity,
           taskledger_internal.lease_kinds(w.detail) as kinds, coalesce(w.detail->>'shards', 'all') as shards
     where w.digest <> all ($1::text::text[])
    offset 0 -- otherwise the columns are computed, and then the condition is checked
  ) d on true
