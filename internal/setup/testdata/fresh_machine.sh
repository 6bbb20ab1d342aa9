# Runs a script of this directory as root on this machine without PostgreSQL. What it writes is in memory, above the
# files of this machine, and ends with this shell. Run it in a mount namespace of its own: unshare --mount sh -eu
work=$1 repository=$2 script=$3
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/root" || exit 77
for dir in /dev /proc /sys "$(go env GOCACHE)" "$(go env GOMODCACHE)"; do
	mkdir -p "$work/root$dir"
	mount --rbind "$dir" "$work/root$dir"
done
exec chroot "$work/root" sh -eu -c '
	cd "$1"
	. internal/setup/testdata/without_postgres.sh
	. "internal/setup/testdata/$2"
' sh "$repository" "$script"
