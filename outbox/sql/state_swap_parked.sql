-- Moves the events that a build has parked to the subscriber, except discarded events.
-- $1 reader in the build, $2 reader. Locks the rows. Index: primary key.
update taskledger.subscriber_parked p
   set reader = $2::text
 where p.reader = $1::text
   and not exists (
     select from taskledger.subscriber_parked s
      where s.reader = $2::text and s.kind = p.kind and s.biz_id = p.biz_id and s.version = p.version)
