-- Gives the parked events of a subscriber another name. Skipped ones stay, since they are discarded in every build.
-- $1 reader, $2 the other name. Locks the rows. Index: primary key.
update taskledger.subscriber_parked p
   set reader = $2::text
 where p.reader = $1::text and p.state <> 'discarded'
