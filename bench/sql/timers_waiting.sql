-- Inserts timers that are due in more than an hour, one second apart. $1 their number. Locks only
-- the inserted rows.
insert into taskledger.timer (due_at, kind, biz_id, version, reason)
select clock_timestamp() + interval '1 hour' + i * interval '1 second', 'bench.waiting', 'task-' || i, 1, 'due'
  from generate_series(1, $1::integer) i
