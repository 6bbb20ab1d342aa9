-- Selects the tasks among the newest snoozes of less than a second that were only snoozed like this, five times or more
-- in a row, most often first.
-- $1 maximum number of snoozes to read. Returns kind, biz_id, how often in a row, and the time of the last snooze.
-- Locks nothing. Indexes: event_short_snooze, backwards; primary key and event_long for the events after each.
select s.kind, s.biz_id, taskledger_internal.short_in_a_row(s.data), (extract(epoch from s.recorded_at) * 1e6)::bigint
  from (
    select e.kind, e.biz_id, e.version, e.data, e.recorded_at
      from taskledger.event e
     where e.type = 'snoozed' and strpos(e.data::text, '"short_in_a_row"') > 0
     order by e.position desc
     limit $1::integer) s
 where taskledger_internal.short_in_a_row(s.data) >= 5
   and s.version = taskledger_internal.newest_of(s.kind, s.biz_id,
         '{snoozed,succeeded,failed,interrupted,scheduled,buried,cancelled,expired,discarded}')
 order by 3 desc, s.kind, s.biz_id
