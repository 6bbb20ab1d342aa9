package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
)

// patience bounds what normally takes milliseconds.
const patience = time.Minute

// Orders get a receipt by River and a coupon by the ledger. Jobs of an old producer become tasks: one for each order,
// however many jobs it has.
func TestBothQueues(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.Owner)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		o := &services.EmbedOptions{
			Client: taskledger.Options{DatabaseURL: db.Config().ConnString()}, Dir: t.TempDir(),
		}
		ended <- services.Embed(ctx, o, func(ctx context.Context, client *taskledger.Client) error {
			return shop(ctx, client, []string{"A-1"})
		})
	}()
	await := func(query string) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			tag, err := db.Exec(t.Context(), query)
			if err == nil && tag.RowsAffected() > 0 {
				return
			}
			select {
			case err := <-ended:
				t.Fatalf("the shop ended: %v", err)
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: no row after %s: %v", query, patience, err)
			}
		}
	}
	await(`select from receipts having count(*) = 1`)

	old, err := river.NewClient(riverpgxv5.New(db), &river.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []string{"A-1", "A-2", "A-2"} {
		if _, err := old.Insert(t.Context(), couponArgs{Order: order, Cents: 500}, nil); err != nil {
			t.Fatal(err)
		}
	}
	await(`select from river_job where state = 'completed' having count(*) = 4`)
	await(`select from coupons having count(*) = 2 and count(distinct order_id) = 2`)
	await(`select from taskledger.event where kind = 'coupon.send' and type = 'succeeded' having count(*) = 2`)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The document shows the program's function place.
func TestDocumentShowsTheProgram(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/from-river.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(doc), "```go\n")
	shown, _, _ = strings.Cut(shown, "```")
	if shown == "" || !strings.Contains(string(program), "\n"+shown+"\n") {
		t.Errorf("docs/from-river.md shows what the program does not have:\n%s", shown)
	}
}
