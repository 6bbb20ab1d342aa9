-- The tables of the producers and handlers, and the logins. Effects have no unique constraint: only the ledger prevents
-- a second effect.
create schema torture;
create table torture.placed (kind text, biz_id text, nonce text not null, primary key (kind, biz_id));
create table torture.effect (kind text not null, biz_id text not null, nonce text not null, worker text not null);
create table torture.foreign_write (at timestamptz not null);
grant usage on schema torture to public;
grant select, insert on all tables in schema torture to public;
create role torture_app in role torture_producer, torture_worker;
alter role torture_app login password 'password-of-logins';
alter role torture_producer login password 'password-of-logins';
alter role torture_relay login password 'password-of-logins';
alter role torture_operator login password 'password-of-logins';
