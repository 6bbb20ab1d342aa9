-- Which of some keys, whose tasks were just inserted and are to run again, were archived.
-- $1 kinds, $2 biz_ids: text array literals of one length.
-- Returns their numbers in the arrays, from 1. Locks nothing. Index: primary key.
select e.i
  from unnest($1::text::text[], $2::text::text[]) with ordinality as e(kind, biz_id, i)
 where taskledger_internal.runs_archived(e.kind, e.biz_id)
 order by e.i
