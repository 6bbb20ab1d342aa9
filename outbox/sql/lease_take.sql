-- Takes or renews the lease of the relay, unless somebody else's is alive.
-- $1 holder, $2 milliseconds it shall live, $3 note: what keeps the holder from working; empty for
-- nothing, null to leave the row's as it is, whoever wrote it. A note that stays keeps its time.
-- Answers a row if it is ours now. Asking while somebody else holds it writes nothing.
-- Locks the row.
insert into taskledger.lease as held (name, holder, since, alive_until, detail)
select 'relay', $1::text, clock_timestamp(), clock_timestamp() + $2::bigint * interval '1 millisecond',
       case when $3::text <> '' then json_build_object('note', $3::text, 'since', clock_timestamp()) end
 where not exists (
   select from taskledger.lease l
    where l.name = 'relay' and l.holder <> $1::text and l.alive_until > clock_timestamp())
    on conflict (name) do update
   set holder = excluded.holder,
       since = case when held.holder = excluded.holder then held.since else excluded.since end,
       alive_until = excluded.alive_until,
       detail = case when $3::text is null or held.detail->>'note' = $3::text then held.detail else excluded.detail end
 where held.holder = excluded.holder or held.alive_until <= clock_timestamp()
returning true
