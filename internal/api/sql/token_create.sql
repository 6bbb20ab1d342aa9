-- Makes a token, unless there are too many.
-- $1 id, $2 name, $3 hash (bytea literal; null: no secret), $4 role, $5 kinds (text array literal), $6 rate or null,
-- $7 actor (null: session_user), $8 expiry or null, $9 maximum number of tokens that are neither revoked nor expired,
-- $10 end of its link or null.
-- Returns the token. Inserts one row. Reads the whole small table.
insert into taskledger.token as t (id, name, hash, role, kinds, rate, actor, expires_at,
                                     link_until)
select $1::text, $2::text, $3::text::bytea, $4::text, $5::text::text[], $6::text::integer,
       coalesce($7::text, session_user::text), $8::text::timestamptz, $10::text::timestamptz
 where (select count(*) from taskledger.token o
         where o.revoked_at is null and (o.expires_at is null or o.expires_at > clock_timestamp())) < $9::bigint
   and taskledger_internal.commit_durably() is distinct from ''
returning t.id, t.name, t.hash, t.role, t.kinds, coalesce(t.rate, 0), (extract(epoch from t.created_at) * 1e6)::bigint,
          t.actor, (extract(epoch from t.expires_at) * 1e6)::bigint, (extract(epoch from t.revoked_at) * 1e6)::bigint,
          coalesce(t.revoked_by, ''), (extract(epoch from t.link_until) * 1e6)::bigint,
          (extract(epoch from t.redeemed_at) * 1e6)::bigint
