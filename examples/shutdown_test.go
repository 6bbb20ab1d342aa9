package examples_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The program orders ends after SIGTERM although its handler ignores its context and never returns, with its
// transaction open: by Client.Close, and by the Close of a connection pool of its own.
func TestProgramEndsBesideAHandlerThatHangs(t *testing.T) {
	t.Parallel()
	const ownPool = `db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	`
	const bounds = "StopTimeout: 1, LeaseTTL: 1_000_000_000"
	for name, opening := range map[string]string{
		"client": "client, err := taskledger.Open(ctx, taskledger.Options{Worker: workers.Config{" + bounds + "}})",
		"pool": ownPool +
			"client, err := taskledger.Open(ctx, taskledger.Options{Worker: workers.Config{DB: db, " + bounds + "}})",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			db := ledgertest.Pool(t, ledgertest.App)
			serve(t, ledgertest.As(t, db, "relay"), server.URL())
			p := programs{t: t, bin: buildHanging(t, opening), env: append(os.Environ(),
				"DATABASE_URL="+db.Config().ConnString(), "NATS_URL="+server.URL())}
			p.wait(p.start("orders", "place", "A-1"))
			cmd := p.start("orders", "work")
			awaitRow(t, db, "select from pg_locks where relation = 'coupons'::regclass and mode = 'RowExclusiveLock'")
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			p.awaitEnd(cmd)
			awaitRow(t, db, "select from taskledger.event where kind = 'coupon.send' and type = 'interrupted'")
		})
	}
}

// buildHanging builds orders with a handler that hangs, and a worker that opens its client by this code.
func buildHanging(t *testing.T, opening string) (bin string) {
	t.Helper()
	source, err := filepath.Abs(filepath.Join("orders", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	before, worker, _ := strings.Cut(string(text), "func work(")
	const inserted = "string(job.BizID), c.Cents)\n"
	for old, replacement := range map[string]string{
		inserted: inserted + "\tif err == nil {\n\t\tselect {}\n\t}\n",
		"client, err := taskledger.Open(ctx, taskledger.Options{})": opening,
	} {
		if !strings.Contains(worker, old) {
			t.Fatalf("%s does not contain %q", source, old)
		}
		worker = strings.ReplaceAll(worker, old, replacement)
	}
	changed := before + "func work(" + worker
	bin = t.TempDir()
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: filepath.Join(bin, "main.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"main.go": []byte(changed), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(bin, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(bin, "overlay.json"),
		"-o", filepath.Join(bin, "orders"), "./orders")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}
