-- Asks the program that runs a projection to apply the parked events of a task again.
-- $1 projection, $2 kind, $3 biz_id. Returns their versions. Locks the rows. Index: primary key.
update taskledger.projection_parked p
   set state = 'retry'
 where p.projection = $1::text and p.kind = $2::text and p.biz_id = $3::text and p.state <> 'skipped'
returning p.version::text
