-- Selects the lost ones among tasks of a kind: they are available or running, and the message of their last waking
-- event is gone. The events decide, and not the projection.
-- $1 kind, $2 biz_ids (array literal). The message is gone of the events visible in $3 that enqueued, and in $5 of
-- those that made available again ('' for none); $4 and $6 moments after which no event is visible there; $7
-- milliseconds for which a task must have been available.
-- Returns biz_id, version, whether it is running, how many of its last events (at most 20) are releases by a
-- reconciler, for how many milliseconds it has been available, the version of the waking event, and whether it is
-- running on a worker with a live lease.
-- Locks nothing. Index: primary key; the lateral limits keep the planner on it.
select p.biz_id, head.version, head.running,
       coalesce((select head.version - max(e.version)
                   from taskledger.event e
                  where e.kind = $1::text and e.biz_id = p.biz_id and e.version > head.version - 20
                    and not (e.type = 'released' and e.actor = 'reconciler')), 20),
       floor(extract(epoch from clock_timestamp() - waking.recorded_at) * 1000)::bigint,
       waking.version,
       head.running and exists (select from taskledger.worker_alive_ms(head.actor, $1::text) w where w.alive_ms > 0)
  from unnest($2::text::text[]) as p(biz_id)
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
 where (head.version = waking.version or head.running)
   and case when waking.type = 'enqueued'
            then waking.recorded_at <= $4::text::timestamptz
                 and taskledger.feed_passed(waking.xid, waking.position, (select taskledger.feed_floor()),
                                            nullif($3::text, '')::pg_snapshot, null, 0)
            else waking.recorded_at <= $6::text::timestamptz
                 and taskledger.feed_passed(waking.xid, waking.position, (select taskledger.feed_floor()),
                                            nullif($5::text, '')::pg_snapshot, null, 0)
       end
   and (head.running or waking.recorded_at < clock_timestamp() - $7::bigint * interval '1 millisecond')
   and not exists (
     select from taskledger.unpublishable_events k
      where k.kind = $1::text and k.biz_id = p.biz_id and k.version = waking.version)
