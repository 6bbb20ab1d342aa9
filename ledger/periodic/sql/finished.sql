-- Sets the next firing of schedules with a fixed delay whose previous task has finished.
-- $1 event types that finish a task (text array literal).
-- Locks those rows, and skips rows that are locked. Reads the whole small table, and by primary key the last event
-- of each previous task. A task that does not exist counts as finished at its firing.
update taskledger.schedule s
   set next_at = least(w.finished_at + s.fixed_delay_ms * interval '1 millisecond', '9998-12-31 00:00:00+00')
  from (
    select p.name, p.last_kind, p.last_biz_id, coalesce(h.recorded_at, p.last_at, clock_timestamp()) as finished_at
      from taskledger.schedule p
      left join lateral (
        select e.type, e.recorded_at
          from taskledger.event e
         where e.kind = p.last_kind and e.biz_id = p.last_biz_id
         order by e.version desc
         limit 1) h on true
     where p.fixed_delay_ms is not null and p.next_at is null
       and (h.type is null or h.type::text = any ($1::text::text[]))
       for update of p skip locked) w
 where s.name = w.name and s.fixed_delay_ms is not null and s.next_at is null
   and s.last_kind is not distinct from w.last_kind and s.last_biz_id is not distinct from w.last_biz_id
