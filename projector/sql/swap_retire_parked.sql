-- Gives the parked events of a projection another name. Skipped ones stay, since they are skipped in every build.
-- $1 projection, $2 the other name. Locks the rows. Index: primary key.
update taskledger.projection_parked p
   set projection = $2::text
 where p.projection = $1::text and p.state <> 'skipped'
