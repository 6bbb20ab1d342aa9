-- How many tasks of a kind may wait.

-- +goose Up

-- What an operator has set for a kind; without a row there is no limit. Enqueueing reads it, in
-- every language; it changes by hand only.
create table taskledger.kind_limit (
  kind           text collate "C" primary key,
  max_waiting    bigint not null check (max_waiting >= 0),
  policy         text not null check (policy in ('reject', 'discard', 'discard_oldest', 'caller_runs')),
  retry_after_ms bigint not null check (retry_after_ms >= 0),  -- the hint for who was rejected
  actor          text not null,
  updated_at     timestamptz not null default clock_timestamp());

-- The kinds with a limit, and how many of their tasks wait: available, as the projector has
-- counted. What it has not seen yet is let in beyond the limit. closed: no more are let in. A kind
-- that discards its oldest lets all in; the scheduler sees to the rest.
create view taskledger.overload as
select l.kind, l.policy, l.max_waiting, l.retry_after_ms, coalesce(c.value, 0) as waiting,
       l.policy <> 'discard_oldest' and coalesce(c.value, 0) >= l.max_waiting as closed
  from taskledger.kind_limit l
  left join lateral (
   select t.value from taskledger.task_count t
    where t.kind = l.kind and t.state = 'available'
    order by t.n desc limit 1) c on true;
