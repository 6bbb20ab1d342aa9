-- Returns the versions of the events of a task that an act concerns: all parked events, or the events to skip, which
-- have failed and are parked or stop the projection. $1 projection, $2 kind, $3 biz_id, $4 1 for the events to skip.
-- Locks nothing. Indexes: primary keys.
select v.version::text
  from (
   select p.version
     from taskledger.projection_parked p
    where p.projection = $1::text and p.kind = $2::text and p.biz_id = $3::text and p.state <> 'skipped'
      and ($4::bigint = 0 or p.error <> '')
    union
   select p.failed_version
     from taskledger.projection p
    where $4::bigint = 1 and p.name = $1::text and p.failures > 0 and p.failed_kind = $2::text
      and p.failed_biz_id = $3::text
      and not exists (
        select from taskledger.projection_parked k
         where k.projection = p.name and k.kind = p.failed_kind and k.biz_id = p.failed_biz_id
           and k.version = p.failed_version)) v
 order by v.version
