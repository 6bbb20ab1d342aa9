-- Counts the schedules, and lists the most overdue ones. Returns a row for each listed schedule, or a single row.
-- Each row contains the names of the schedules that have been paused longest, too: a JSON array.
-- $1 maximum number of listed schedules, and of these names.
-- Locks nothing. Reads the whole small table, without the args of its rows.
with due as materialized (
  select s.name, s.next_at from taskledger.schedule s where s.paused_at is null and s.next_at <= clock_timestamp()
)
select n.schedules, n.paused, (select count(*) from due), coalesce(d.name, ''),
       (extract(epoch from d.next_at) * 1e6)::bigint,
       (select coalesce(json_agg(p.name)::text, '[]')
          from (
            select s.name
              from taskledger.schedule s
             where s.paused_at is not null
             order by s.paused_at, s.name
             limit $1::bigint) p)
  from (select count(*) as schedules, count(*) filter (where s.paused_at is not null) as paused
          from taskledger.schedule s) n
  left join (select due.name, due.next_at from due order by due.next_at, due.name limit $1::bigint) d on true
 order by d.next_at, d.name
