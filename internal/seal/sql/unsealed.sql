-- The positions among $1 whose events are not sealed, in their order, as an array literal without braces.
-- $1 positions (array literal). Locks nothing. Indexes: as taskledger_internal.sealed_leaf.
select coalesce(string_agg(p.position::text, ',' order by p.position), '')
  from unnest($1::text::bigint[]) p(position)
 where not exists (select from taskledger_internal.sealed_leaf(p.position))
