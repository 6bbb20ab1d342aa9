package examples_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var oldCommit = flag.String("old", "", "run the orders program of this commit beside that of today")

// A producer and a worker of an older commit work on the schema, the stream and the services of today, beside those of
// today: each order has one coupon, whichever version placed it and works on it.
func TestOldVersionBesideNew(t *testing.T) {
	if *oldCommit == "" {
		t.Skip("-old COMMIT builds that commit, which takes a minute or more, and needs a checkout")
	}
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	db := ledgertest.Pool(t, ledgertest.App)
	serve(t, ledgertest.As(t, db, "relay"), server.URL())
	env := append(os.Environ(), "DATABASE_URL="+db.Config().ConnString(), "NATS_URL="+server.URL())
	newer := programs{t: t, bin: t.TempDir(), env: env}
	older := programs{t: t, bin: t.TempDir(), env: env}
	shell(t, `go build -o "$1" ./orders`, newer.bin)
	shell(t, `mkdir "$1/src" && git -C .. archive "$2" | tar -x -C "$1/src" && mkdir -p "$1/src/examples" &&
		cp -R orders "$1/src/examples" && cd "$1/src" && go build -buildvcs=false -o "$1" ./examples/orders`,
		older.bin, *oldCommit)

	var all []string
	place := func(p programs) {
		args := []string{"place"}
		for range 100 {
			all = append(all, fmt.Sprintf("A-%04d", len(all)))
			args = append(args, all[len(all)-1])
		}
		p.wait(p.start("orders", args...))
	}
	place(newer)
	old := older.start("orders", "work")
	await(t, db, strings.Join(all, " "), "coupons") // by the old worker alone
	today := newer.start("orders", "work")
	place(older)
	place(newer)
	newer.stop(today) // with work left for the old one
	await(t, db, strings.Join(all, " "), "coupons")
	today = newer.start("orders", "work")
	place(older)
	older.stop(old)
	place(older)
	await(t, db, strings.Join(all, " "), "coupons")
	newer.stop(today)
	ledgertest.Check(t, db)
}

// shell runs a line of a shell with arguments, in this directory.
func shell(t *testing.T, line string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", append([]string{"-c", line, "sh"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(line), err, out)
	}
}
