# Root in a container gets the distribution's package, without a question and without a server of the package's own.
apt-get purge -y -qq 'postgresql*' >/dev/null 2>&1 || true
apt-get update -qq >/dev/null 2>&1 || exit 77
touch /.dockerenv
run make -s setup
must_have "$out" "PostgreSQL is not installed: running apt-get install postgresql"
ls /usr/lib/postgresql/*/bin/postgres /usr/lib/postgresql/*/bin/pg_basebackup >/dev/null || fail "no binaries: $out"
[ ! -e /var/cache/taskledger ] || fail "fetched, too: $out"
[ -z "$(ls /var/lib/postgresql/*/main 2>/dev/null)" ] || fail "the package made a cluster: $out"
run make -s setup
[ -z "$out" ] || fail "want no output: $out"
run sh -c "make -s test TEST='-count=1 -run TestDatabasesAreMigratedAndSeparate ./ledger/ledgertest'"
must_have "$out" "ok"
