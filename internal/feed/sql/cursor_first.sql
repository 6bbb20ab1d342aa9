-- The first cursor row of a reader, at the edge before the first event, or at the present.
-- $1 reader; the edge: $2 seen, $3 seen_top, $4 seen_bound; $5 1 if the reader needs only the events of tasks in line,
-- so that it begins at the present if no task has stood in a line, else 0. Inserts nothing if the cursor exists.
-- A subscriber gets the login of the session.
-- Locks its row. Indexes: primary key, event_line.
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, login)
select $1::text, 1, case when b.is_now then pg_current_snapshot() else $2::text::pg_snapshot end,
       case when b.is_now then coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0)
            else $3::bigint end,
       case when b.is_now then pg_current_xact_id() else $4::text::xid8 end, taskledger_internal.origin(),
       case when starts_with($1::text, 'subscriber/') then session_user end
  from (select $5::bigint = 1 and not exists (select from taskledger.event e where e.type = 'lined_up') as is_now) b
 where not exists (select from taskledger.cursor c where c.reader = $1::text)
    on conflict do nothing
