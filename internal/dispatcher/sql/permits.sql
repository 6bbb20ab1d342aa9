-- Selects the permits and tokens in use of limits.
-- $1 the names of the limits: a text array literal. Returns the database's time in microseconds, and in each row the
-- name and the value of a limit, and either kind, biz_id and version of the task that holds a permit, and whether its
-- start is not recorded yet, or empty texts, 0, false and when a token was used. Without rows of limits, one row with
-- '' as name.
-- Locks nothing. Index: primary keys; reads the rows of these limits, and the head of each holder.
select (date_part('epoch', clock_timestamp()) * 1e6)::bigint, coalesce(u.name, ''), coalesce(u.value, ''),
       coalesce(u.kind, ''), coalesce(u.biz_id, ''), coalesce(u.version, 0), coalesce(u.is_open, false),
       (date_part('epoch', u.taken_at) * 1e6)::bigint
  from (select) always
  left join (
    select p.name, p.value, p.kind, p.biz_id, p.version, not p.is_recorded as is_open, null::timestamptz as taken_at
      from taskledger.permits p
     where p.name = any ($1::text::text[])
     union all
    select s.name, s.value, '', '', 0, false, s.taken_at
      from taskledger_internal.recent_starts s
     where s.name = any ($1::text::text[])) u on true
