-- Adds to running totals: appends row n + 1 to each, and returns its n.
-- $1 kinds, $2 states, $3 amounts: text array literals of one length.
-- Locks no row that another transaction needs: the transaction has appended the projector's cursor row, which
-- makes it the only writer. Index: primary key, read at its newest end, where no removed rows lie.
insert into taskledger.task_count (kind, state, n, value)
select d.kind, d.state, coalesce(newest.n, 0) + 1, coalesce(newest.value, 0) + d.value
  from unnest($1::text::text[], $2::text::taskledger.task_state[], $3::text::bigint[]) as d(kind, state, value)
  left join lateral (
    select c.n, c.value from taskledger.task_count c
     where c.kind = d.kind and c.state = d.state
     order by c.n desc
     limit 1) newest on true
returning kind, state::text, n
