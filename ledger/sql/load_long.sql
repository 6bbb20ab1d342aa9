-- Reads the events that decide the state of a task with a long history: the newest of each type and the newest with
-- args, which may be the same, after the first 64, oldest first. Before its columns, each row contains the number of
-- failures since the task was last finished, and whether it was, both after the first 64.
-- $1 kind, $2 biz_id, $3 the last version that counts.
-- Locks nothing. Indexes: primary key, backwards, for the head; event_long and event_run for the others. Only
-- the count reads more than one entry for each type: one for each failure. The lateral limits keep the planner on them,
-- whatever the statistics.
with head as materialized (
  select h.version
    from taskledger.event h
   where h.kind = $1::text and h.biz_id = $2::text and h.version <= $3::bigint
   order by h.version desc
   limit 1
), finish as materialized (
  select max(f.version) as version
    from head
   cross join unnest('{succeeded,buried,cancelled,expired,discarded}'::taskledger.event_type[]) as t(type)
   cross join lateral (
     select e.version
       from taskledger.event e
      where e.kind = $1::text and e.biz_id = $2::text and e.type = t.type and e.version > 64
        and e.version < head.version
      order by e.version desc
      limit 1) f
), failures as materialized (
  select finish.version is not null as released,
         (select count(*)
            from taskledger.event e
           where e.kind = $1::text and e.biz_id = $2::text and e.type = 'failed' and e.version > 64
             and e.version > coalesce(finish.version, 0) and e.version <= $3::bigint) as failures
    from finish
)
select failures.failures, failures.released,
       e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = e.login_id), ''),
       e.data_version, e.priority, coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''),
       e.data::text, e.meta::text
  from failures
 cross join lateral (
   select l.*
     from unnest(enum_range(null::taskledger.event_type)) as t(type)
    cross join lateral (
      select n.*
        from taskledger.event n
       where n.kind = $1::text and n.biz_id = $2::text and n.type = t.type and n.version > 64
         and n.version <= $3::bigint
       order by n.version desc
       limit 1) l
    union all
   (select r.*
      from taskledger.event r
     where r.kind = $1::text and r.biz_id = $2::text and r.run is not null and r.version > 64
       and r.version <= $3::bigint
     order by r.version desc
     limit 1)) e
 order by e.version
