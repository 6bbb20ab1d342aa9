-- Adds an erasure of the files to the ledger, as its owner.
-- $1 id, $2 kinds, $3 biz_ids, $4 positions (array literals of one length), $5 when it was, in microseconds since 1970,
-- $6 actor, $7 reason. Locks nothing. Index: primary key of event.
select taskledger_internal.import_erasure($1::text::uuid, $2::text::text[], $3::text::text[], $4::text::bigint[],
                                          timestamptz 'epoch' + $5::bigint * interval '1 microsecond', $6::text,
                                          $7::text)
