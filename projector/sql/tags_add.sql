-- Adds tags of tasks. Existing tags stay.
-- $1 tags, $2 positions of first events: array literals of one length. Locks nothing that another transaction needs.
-- Index: primary key.
insert into taskledger.task_tag (tag, position)
select r.tag, r.position
  from unnest($1::text::text[], $2::text::bigint[]) as r(tag, position)
    on conflict do nothing
