# serve of root fetches PostgreSQL, and runs it as an ordinary user, although there is no user postgres.
run go build -o /usr/bin/taskledger ./cmd/taskledger
export TASKLEDGER_DATA=/var/lib/taskledger-of-a-test

# The cause comes first, and the places that were searched only with --verbose.
if out=$(npm_config_registry=http://127.0.0.1:1 taskledger serve 2>&1); then fail "serve without a registry: $out"; fi
case $out in "taskledger: fetch PostgreSQL 18"*) fail "begins without the notice: $out" ;; esac
must_have "$out" "connection refused" "apt-get install postgresql" "DATABASE_URL"
case $out in *pg_config*) fail "the error has the places: $out" ;; esac
if out=$(npm_config_registry=http://127.0.0.1:1 taskledger serve --verbose 2>&1); then fail "$out"; fi
must_have "$out" "pg_config"
if out=$(TASKLEDGER_NO_FETCH=1 taskledger serve 2>&1); then fail "serve that may not fetch: $out"; fi
must_have "$out" "PostgreSQL is not installed; install it: apt-get install postgresql"

# serve_once USER runs serve until it answers. The server's processes are those of the user.
serve_once() {
	taskledger serve >/tmp/serve.log 2>&1 &
	serve=$!
	until taskledger enqueue coupon.send A-1 --args '{"cents":500}' >/tmp/enqueue.log 2>&1; do
		kill -0 $serve || fail "serve ended: $(cat /tmp/serve.log)"
		sleep 0.2
	done
	owner=$(stat -c %U "/proc/$(head -1 "$TASKLEDGER_DATA/postgres/data/postmaster.pid")")
	[ "$owner" = "$1" ] || fail "PostgreSQL runs as $owner, want $1"
	kill -INT $serve
	wait $serve || fail "serve: status $?: $(cat /tmp/serve.log)"
}
serve_once nobody
must_have "$(cat /tmp/serve.log)" "PostgreSQL is not installed: fetching PostgreSQL 18"
# A package of the distribution makes the user postgres. The data stays readable.
echo 'postgres:x:9999:9999::/:/bin/sh' >>/etc/passwd
serve_once nobody
