-- Selects the events, with the content of their messages, that are the last waking events of tasks that are available
-- or running, among some waking events.
-- $1 positions (array literal). Returns in position order. Raises an error on a standby, where an event may be missing.
-- Locks nothing. Indexes: (position), and the primary key twice for each event.
select w.position, w.version, w.attempt, w.shard, w.type::text, (extract(epoch from w.recorded_at) * 1e6)::bigint,
       w.kind, w.biz_id, w.meta::text, first.data::text, first.meta::text
  from unnest($1::text::bigint[]) p(position)
  join taskledger.event w on w.position = p.position
 cross join lateral (
   select h.type from taskledger.event h
    where h.kind = w.kind and h.biz_id = w.biz_id
    order by h.version desc
    limit 1) head
 cross join lateral (
   select f.data, f.meta from taskledger.event f
    where f.kind = w.kind and f.biz_id = w.biz_id and f.version = 1) first
 where taskledger.state_after(head.type) in ('available', 'running') and taskledger.is_primary()
   and not exists (
     select from taskledger.event l
      where l.kind = w.kind and l.biz_id = w.biz_id and l.version > w.version
        and l.type in ('enqueued', 'released', 'interrupted'))
 order by w.position
