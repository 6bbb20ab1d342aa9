-- Selects the last waking events, with the content of their messages, of tasks that are available or running, among the
-- next tasks that the projector lists as lingering.
-- $1 enqueued_at in microseconds since 1970, $2 kind, $3 biz_id of the task to continue after; $4 maximum number of
-- tasks.
-- Returns a row for each listed task, in the order of the list: its enqueued_at, kind and biz_id, and beside them the
-- event, or nulls if the task has finished meanwhile.
-- Locks nothing. Indexes: task_lingering, and the primary key of event three times for each task.
with page as materialized (
  select l.enqueued_at, l.kind, l.biz_id
    from taskledger.lingering_tasks l
   where (l.enqueued_at, l.kind, l.biz_id)
         > ('epoch'::timestamptz + $1::bigint * interval '1 microsecond', $2::text, $3::text)
   order by l.enqueued_at, l.kind, l.biz_id
   limit $4::integer)
select (extract(epoch from p.enqueued_at) * 1e6)::bigint, p.kind, p.biz_id,
       u.position, u.version, u.attempt, u.shard, u.type::text, (extract(epoch from u.recorded_at) * 1e6)::bigint,
       u.kind, u.biz_id, u.meta::text, u.args_data::text, u.args_meta::text
  from page p
  left join lateral (
    select w.*, f.data as args_data, f.meta as args_meta
      from (
       select e.position, e.version, e.attempt, e.shard, e.type, e.recorded_at, e.kind, e.biz_id, e.meta
         from taskledger.event e
        where e.kind = p.kind and e.biz_id = p.biz_id and e.type in ('enqueued', 'released', 'interrupted')
        order by e.version desc
        limit 1) w
     cross join lateral (
       select h.type from taskledger.event h
        where h.kind = p.kind and h.biz_id = p.biz_id
        order by h.version desc
        limit 1) head
     cross join lateral (
       select i.data, i.meta from taskledger.event i
        where i.kind = p.kind and i.biz_id = p.biz_id and i.version = 1) f
     where taskledger.state_after(head.type) in ('available', 'running')) u on true
 order by p.enqueued_at, p.kind, p.biz_id
