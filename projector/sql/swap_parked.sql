-- Moves the events that a build has parked to the name of the projection, except those that are skipped by now.
-- $1 name in the build, $2 projection. Locks the rows. Index: primary key.
update taskledger.projection_parked p
   set projection = $2::text
 where p.projection = $1::text
   and not exists (
     select from taskledger.projection_parked s
      where s.projection = $2::text and s.kind = p.kind and s.biz_id = p.biz_id and s.version = p.version)
