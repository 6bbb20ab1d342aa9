-- Selects until when the database may have lost published events: the later one of a rebase, and of the moment since
-- which it is on its timeline. That is when the relay wrote its first cursor row on it, or now. Null if neither has
-- happened: all cursor rows are on this timeline.
-- Locks nothing. Index: primary key of cursor, which it reads for the relay.
select (extract(epoch from greatest(
         case
           when exists (select from taskledger_internal.relay_mark m where m.timeline <> taskledger_internal.timeline())
           then coalesce((select min(m.recorded_at)
                            from taskledger_internal.relay_mark m
                           where m.timeline = taskledger_internal.timeline()),
                         clock_timestamp())
         end, (select f.raised_at from taskledger_internal.floors f))) * 1e6)::bigint
