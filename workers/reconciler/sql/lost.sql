-- Lost tasks of a kind, among the next $3 tasks of the projection: they are available, or running on a worker
-- without a live lease, and the message of their last waking event is gone.
-- $1 kind, $2 biz_id after which to start, $3 number of tasks to read. The message is gone of the events visible
-- in $4 that enqueued, and in $6 of those that made available again ('' for none); $5 and $7 moments after which
-- no event is visible there; $8 milliseconds for which a task must have been available; $9 shards to read, one
-- bit each.
-- Returns the biz_id that was read last ('' if it was the last of the kind), beside null or a lost task: biz_id,
-- version, whether it is running, how many of its last events (at most 20) are releases by a reconciler, and for how
-- many milliseconds it has been available.
-- The projection only selects the tasks whose events are read; the events decide.
-- Locks nothing. Index: primary keys; the lateral limits keep the planner on them.
with page as materialized (
  select t.biz_id, t.state, t.version, t.updated_at, t.shard
    from taskledger.tasks t
   where t.kind = $1::text and t.biz_id > $2::text
   order by t.biz_id
   limit $3::integer
), reached as (
  select case when count(*) < $3::integer then '' else max(p.biz_id) end as biz_id from page p
)
select reached.biz_id, lost.biz_id, lost.version, lost.running, lost.releases, lost.waiting
  from reached
  left join (
    select p.biz_id, head.version, head.running,
           coalesce((select head.version - max(e.version)
                       from taskledger.event e
                      where e.kind = $1::text and e.biz_id = p.biz_id and e.version > head.version - 20
                        and not (e.type = 'released' and e.actor = 'reconciler')), 20) as releases,
           floor(extract(epoch from clock_timestamp() - waking.recorded_at) * 1000)::bigint as waiting
      from page p
     cross join lateral (
       select h.version, h.actor, h.type in ('started', 'progressed') as running
         from taskledger.event h
        where h.kind = $1::text and h.biz_id = p.biz_id
        order by h.version desc
        limit 1) head
     cross join lateral (
       select w.xid, w.position, w.version, w.type, w.recorded_at
         from taskledger.event w
        where w.kind = $1::text and w.biz_id = p.biz_id and w.type in ('enqueued', 'released', 'interrupted')
        order by w.version desc
        limit 1) waking
     where ($9::bigint >> p.shard) & 1 = 1
       and (p.state = 'running'
            or p.state = 'available'
               and p.updated_at <= case when p.version = 1 then $5::text::timestamptz else $7::text::timestamptz end)
       and (head.version = waking.version or head.running)
       and case when waking.type = 'enqueued'
                then waking.recorded_at <= $5::text::timestamptz
                     and taskledger.feed_passed(waking.xid, waking.position, (select taskledger.feed_floor()),
                                                nullif($4::text, '')::pg_snapshot, null, 0)
                else waking.recorded_at <= $7::text::timestamptz
                     and taskledger.feed_passed(waking.xid, waking.position, (select taskledger.feed_floor()),
                                                nullif($6::text, '')::pg_snapshot, null, 0)
           end
       and (head.running or waking.recorded_at < clock_timestamp() - $8::bigint * interval '1 millisecond')
       and not (head.running and exists (
         select from taskledger.worker_alive_ms(head.actor) w where w.alive_ms > 0))
       and not exists (
         select from taskledger.parked_events k
          where k.kind = $1::text and k.biz_id = p.biz_id and k.version = waking.version)) lost on true
