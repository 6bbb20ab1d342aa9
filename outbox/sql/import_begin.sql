-- Lets a consumer group of a watermill-sql outbox begin at the start, if it is new.
-- $1 the group. {offsets} is the group's table, quoted.
insert into {offsets} (consumer_group, offset_acked, last_processed_transaction_id)
values ($1::text, 0, '0')
    on conflict (consumer_group) do nothing
