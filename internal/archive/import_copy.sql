-- Inserts events with their positions, by the text format of COPY, which cannot be prepared. Locks nothing.
copy taskledger.event (position, kind, biz_id, version, run, attempt, type, recorded_at, login_id, shard, data_version,
                       priority, order_key, partition, data, meta, actor) from stdin
