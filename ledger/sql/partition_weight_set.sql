-- Sets or replaces the weight of a partition.
-- $1 partition, $2 weight, a decimal number; $3 actor or null for session_user.
-- Locks the row of the partition. Index: primary key.
insert into taskledger.partition_weight as w (partition, weight, actor)
select $1::text, $2::text::numeric, coalesce($3::text, session_user)
 where taskledger_internal.commit_durably() is distinct from ''
    on conflict (partition) do update
   set weight = excluded.weight, actor = excluded.actor, updated_at = clock_timestamp()
