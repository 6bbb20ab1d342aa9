package explain_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/explain"
	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestMain(m *testing.M) { os.Exit(longtest.Run(m)) }

// The sentence about a task states that another run follows it, until that run is cancelled or begins.
func TestOneMoreRunWaits(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "reader")
	k := ledger.Key{Kind: "customer.resync", BizID: "17"}
	ledgertest.Enqueue(t, pool, k, "1")
	task := ledgertest.Append(t, pool, k, ledger.EventStarted)
	const sentence = "One more run waits behind it"
	for _, follows := range []bool{false, true} {
		if follows {
			o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsFollow}
			if _, err := ledger.Enqueue(t.Context(), pool, k, json.RawMessage("2"), o); err != nil {
				t.Fatal(err)
			}
		}
		why, err := explain.Source{DB: pool}.State(t.Context(), task)
		if err != nil || strings.Contains(why, sentence) != follows {
			t.Errorf("%q, %v; a run follows: %v", why, err, follows)
		}
	}
}
