-- Returns the heads of tasks. $1 kind, $2 biz_ids. Takes no locks. Index: primary key.
-- The parameters are columns of a subquery, so that PostgreSQL keeps one plan.
select h.biz_id, h.version, h.type::text, h.recorded_at
  from (select $1::text as kind, $2::text[] as ids offset 0) p
 cross join lateral unnest(p.ids) u(b)
 cross join lateral (
   select e.* from floor.event e where e.kind = p.kind and e.biz_id = u.b order by e.version desc limit 1) h
