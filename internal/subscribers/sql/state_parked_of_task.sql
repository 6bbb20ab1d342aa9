-- Returns the versions of the events of a task that an act concerns: all parked events, or the events to discard, which
-- have failed and are parked or stop the projection. $1 reader, $2 kind, $3 biz_id, $4 1 for the events to discard.
-- Locks nothing. Indexes: primary keys.
select v.version::text
  from (
   select p.version
     from taskledger.subscriber_parked p
    where p.reader = $1::text and p.kind = $2::text and p.biz_id = $3::text and p.state <> 'discarded'
      and ($4::bigint = 0 or p.error <> '')
    union
   select f.version
     from taskledger_internal.failing_event($1::text) f
    where $4::bigint = 1 and f.kind = $2::text and f.biz_id = $3::text
      and not exists (
        select from taskledger.subscriber_parked k
         where k.reader = $1::text and k.kind = f.kind and k.biz_id = f.biz_id and k.version = f.version)) v
 order by v.version
