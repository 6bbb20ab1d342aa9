# Removes PostgreSQL and all that setup may have left, and has what the scripts check with.
rm -rf /usr/lib/postgresql /usr/bin/postgres /usr/bin/pg_config /var/cache/taskledger /etc/postgresql-common
rm -f /.dockerenv /run/.containerenv
sed -i '/^postgres:/d' /etc/passwd

fail() {
	echo "$*" >&2
	exit 1
}

# must_have TEXT PART...
must_have() {
	text=$1
	shift
	for part in "$@"; do
		case $text in
		*"$part"*) ;;
		*) fail "no \"$part\" in: $text" ;;
		esac
	done
}

# run COMMAND... stores what it prints in $out.
run() {
	out=$("$@" 2>&1 </dev/null) || fail "$*: status $?: $out"
}
