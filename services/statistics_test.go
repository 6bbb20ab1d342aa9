package services_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
)

// An administrator resets the statistics of the server, which is no crash: its sessions continue, and so do its tasks.
func TestStatisticsAreReset(t *testing.T) {
	t.Parallel()
	address := ledgertest.Cluster(t, nil).URL(ledgertest.Database)
	work, greeted := greeter()
	whole := embed(t, services.EmbedOptions{Client: taskledger.Options{DatabaseURL: address}, Dir: t.TempDir()}, work)
	db, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	const tasks, rounds = 20, 4
	for round := range rounds {
		for i := range tasks {
			id := ledger.BizID(fmt.Sprintf("order-%d-%d", round, i))
			if _, err := greet.Enqueue(t.Context(), db, id, "world", nil); err != nil {
				t.Fatal(err)
			}
		}
		deadline := time.Now().Add(patience)
		for done := 0; done < (round+1)*tasks; time.Sleep(10 * time.Millisecond) {
			err := db.QueryRow(t.Context(),
				"select count(*) from taskledger.event where type = 'succeeded'").Scan(&done)
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("round %d: %d tasks have succeeded, %v\n%s", round, done, err, &whole.log)
			}
		}
		if _, err := db.Exec(t.Context(), "select pg_stat_reset_shared('bgwriter')"); err != nil {
			t.Fatal(err)
		}
	}
	whole.end(t)
	if n := len(greeted); n != tasks*rounds {
		t.Errorf("%d handlers have run for %d tasks\n%s", n, tasks*rounds, &whole.log)
	}
	if strings.Contains(whole.log.String(), "cannot record an outcome") {
		t.Errorf("outcomes were refused:\n%s", &whole.log)
	}
}
