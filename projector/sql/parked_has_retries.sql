-- Reports whether an operator wants parked events of a projection to be retried.
-- $1 projection. Locks nothing. Index: primary key; it reads the events that are parked.
select exists (
  select from taskledger.projection_parked p where p.projection = $1::text and p.state = 'retry')
