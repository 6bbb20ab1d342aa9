-- Counts the parked and the discarded events of each of some subscribers.
-- $1 readers: a text array literal; $2 greatest number to count.
-- Locks nothing. Index: primary key.
select n.name,
       (select count(*)
          from (
           select from taskledger.subscriber_parked k
            where k.reader = n.name and k.state <> 'discarded'
            limit $2::integer) k),
       (select count(*)
          from (
           select from taskledger.subscriber_parked k
            where k.reader = n.name and k.state = 'discarded'
            limit $2::integer) k)
  from unnest($1::text::text[]) n(name)
