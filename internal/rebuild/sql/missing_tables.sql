-- Returns the tables of a projection that do not exist.
-- $1 name of the projection, which is also the schema's name. Locks nothing. Index: primary key.
select t.name
  from taskledger.projection p
 cross join lateral unnest(p.tables) t(name)
 where p.name = $1::text and to_regclass(format('%I.%I', p.name, t.name)) is null
 order by 1
