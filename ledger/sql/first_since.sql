-- Reports whether no earlier event of some types of a task lies after a place.
-- $1 kind, $2 biz_id, $3 version of the event; $4 types: an array literal; $5 seen or '', $6 until, $7 after_position
-- of the place; '' is the place before the first event.
-- Locks nothing. Index: primary key, backwards to the nearest earlier event of the types.
select not exists (
  select
    from (
     select b.xid, b.position
       from taskledger.event b
      where b.kind = $1::text and b.biz_id = $2::text and b.version < $3::bigint::integer
        and b.type = any($4::text::taskledger.event_type[])
      order by b.version desc
      limit 1) e
   where not taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()),
                                             nullif($5::text, '')::pg_snapshot, nullif($6::text, '')::pg_snapshot,
                                             $7::bigint))
