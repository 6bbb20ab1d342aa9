-- Adds a consumer group to a watermill-sql outbox, at the beginning, unless it exists.
-- $1 group. {offsets} is the table of groups, quoted.
-- Locks a new row. Index: primary key.
insert into {offsets} (consumer_group, offset_acked, last_processed_transaction_id)
values ($1::text, 0, '0')
    on conflict (consumer_group) do nothing
