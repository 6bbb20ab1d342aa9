-- Extends the lease of a session over HTTP, or creates it. While it lasts, it keeps the kinds that another process has
-- written: that process has moved other attempts of the session.
-- $1 id of the session's worker; $2 kinds, a text array literal; $3 duration in milliseconds.
-- Locks the row. Index: primary key.
insert into taskledger.lease as l (name, holder, alive_until, term, detail)
values ('worker/' || $1::text, $1::text, clock_timestamp() + $3::bigint * interval '1 millisecond',
        $3::bigint * interval '1 millisecond',
        ('{"kinds":' || to_json($2::text::text[])::text || ',"shards":"all","is_session":true}')::json)
    on conflict (name) do update
   set alive_until = excluded.alive_until, term = excluded.term, login = excluded.login,
       detail = case when l.alive_until <= clock_timestamp() then excluded.detail
                     when taskledger_internal.lease_kinds(l.detail) @> $2::text::text[] then l.detail
                     else ('{"kinds":' || to_json(array(
                       select k.kind from unnest(taskledger_internal.lease_kinds(l.detail) || $2::text::text[]) k(kind)
                        group by k.kind
                        order by k.kind collate "C"))::text || ',"shards":"all","is_session":true}')::json end
