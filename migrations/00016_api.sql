-- The HTTP API: its callers.
-- Owner: package internal/api.
--
--   token  written by operators (taskledger create token, delete token, open), read by the API; redeem_link
--
-- No other package reads it.

-- +goose Up

-- A caller is identified by a secret, stored only as its SHA-256, or, if hash is null, by the name that a client
-- certificate or a trusted proxy gives. The secret has 130 random bits, so a fast hash is as safe as a slow one.
--
-- A row with link_until is a session of the console. At first, hash is the hash of a link's secret, with which the API
-- admits no request. Until link_until, redeem_link replaces it once with the hash of the session's secret.
create table taskledger.token (
  id         text collate "C" primary key,  -- the part of the token that is no secret
  name       text collate "C" not null,     -- of the caller: the actor of its events
  hash       bytea,
  role       text not null,
  kinds      text[] not null default '{}',  -- of the tasks that it may read and change; {}: all
  rate       integer,                       -- requests a second; null: the default of the API
  created_at timestamptz not null default clock_timestamp(),
  actor      text not null default session_user,
  expires_at timestamptz,
  revoked_at timestamptz,
  revoked_by text,
  link_until timestamptz,                   -- of a session: the end of its link; null: not a session
  redeemed_at timestamptz,                  -- when the link was used; null: not yet
  check (id ~ '^[a-z0-9]{1,32}$'),
  check (name ~ '^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$'),
  check (octet_length(hash) = 32),
  check (role in ('viewer', 'producer', 'worker', 'operator', 'admin')),
  check (cardinality(kinds) <= 1000),
  check (rate > 0),
  check (created_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (expires_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (revoked_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (link_until between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (redeemed_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (link_until is null or hash is not null and expires_at is not null));

-- One caller without a secret for each name.
create unique index token_name on taskledger.token (name) where hash is null and revoked_at is null;

comment on table taskledger.token is 'The callers of the HTTP API: the hashes of their tokens, their roles and kinds.';

-- Runs with its owner's rights, because the API may not write tokens: a caller must present the link's secret, and
-- the API can read only its hash. It compares hashes, so its time reveals nothing about the secret. It also deletes the
-- sessions that ended more than 30 days ago. The row lock makes the second of two calls see the first one's hash.
-- +goose StatementBegin
create function taskledger_internal.redeem_link(secret text, session_hash bytea) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform taskledger_internal.commit_durably();
  delete from taskledger.token t
   where t.link_until is not null and t.expires_at < clock_timestamp() - interval '30 days';
  update taskledger.token t
     set hash = session_hash, redeemed_at = clock_timestamp()
   where t.id = split_part(secret, '_', 2) and t.hash = sha256(convert_to(secret, 'UTF8'))
     and t.link_until > clock_timestamp() and t.redeemed_at is null and t.revoked_at is null;
  return found;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.redeem_link(text, bytea) is
  'Exchanges the secret of a link, once, for the secret of a session. Returns false if the link is unknown, used, '
  'expired or revoked.';
