-- The failed attempts of each of some kinds by hour.
-- $1 time from which and $2 time before which hours begin, both whole hours. $3 kinds: a text array literal.
-- Locks nothing. Index: kind_hour_hour, once for each kind and hour.
select k.kind, (extract(epoch from h.hour) * 1e6)::bigint, o.failed
  from unnest($3::text::text[]) k(kind)
 cross join generate_series($1::text::timestamptz, $2::text::timestamptz - interval '1 hour', interval '1 hour') h(hour)
 cross join lateral (
   select sum(f.failed)::bigint as failed
     from taskledger.kind_hour f
    where f.hour = h.hour and f.kind = k.kind) o
 where o.failed > 0
