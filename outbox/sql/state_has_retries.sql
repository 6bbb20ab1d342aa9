-- Reports whether an operator wants parked events of a subscriber to be retried.
-- $1 reader. Locks nothing. Index: primary key; it reads the events that are parked.
select exists (
  select from taskledger.subscriber_parked p where p.reader = $1::text and p.state = 'retry')
