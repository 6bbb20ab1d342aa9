-- Counts the parked and the skipped events of each of some projections.
-- $1 projections: a text array literal; $2 greatest number to count.
-- Locks nothing. Index: primary key.
select n.name,
       (select count(*)
          from (
           select from taskledger.projection_parked k
            where k.projection = n.name and k.state <> 'skipped'
            limit $2::integer) k),
       (select count(*)
          from (
           select from taskledger.projection_parked k
            where k.projection = n.name and k.state = 'skipped'
            limit $2::integer) k)
  from unnest($1::text::text[]) n(name)
