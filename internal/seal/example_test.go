package seal_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// documented is the event of the package comment.
func documented() seal.Event {
	data, actor := `{"percent":10}`, "alice"
	return seal.Event{
		Position: 17, Key: ledger.Key{Kind: "coupon.send", BizID: "A-1"}, Version: 2, Attempt: 1,
		Type: "succeeded", RecordedAt: time.Date(2026, 11, 17, 9, 0, 0, 123456000, time.UTC), LoginID: 3, Shard: 12,
		DataVersion: 1, Data: &data, Actor: &actor,
	}
}

// The record of an event, byte for byte, and the hash of its leaf. The salt of the example is sixteen letters.
func ExampleEvent_Record() {
	record := documented().Record(documented().Digest([]byte("sixteen letters.")))
	fmt.Print(string(record))
	fmt.Println("leaf", tlog.RecordHash(record))
	// Output:
	// taskledger event v1
	// position 17
	// kind 11 coupon.send
	// biz_id 3 A-1
	// version 2
	// run -
	// attempt 1
	// type succeeded
	// recorded_at 2026-11-17T09:00:00.123456Z
	// login_id 3
	// shard 12
	// data_version 1
	// priority 0
	// order_key -
	// partition -
	// personal 215e340da2977571d4935c0b2f779c8c1d4fb52867dafc208f7f973099e4e8b9
	// leaf EJZKSPzyDxr+W7ImfJMmLna9Yk0OBVFEnT5e8bXLFZg=
}

// The package comment contains the record of ExampleEvent_Record.
func TestRecordIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	record := string(documented().Record(documented().Digest([]byte("sixteen letters."))))
	text := "//\t" + strings.ReplaceAll(strings.TrimSuffix(record, "\n"), "\n", "\n//\t") + "\n"
	if !strings.Contains(string(doc), text) {
		t.Errorf("doc.go does not contain\n%s", text)
	}
}

// An auditor keeps a checkpoint. Later the ledger is verified against it, and an event is proved to a third person.
func ExampleRun() {
	ctx := context.Background()
	pool, done := ledgertest.Example(ledgertest.App, "archiver")
	defer done()

	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	if _, err := ledger.Enqueue(ctx, pool, key, []byte(`{"percent":10}`), nil); err != nil {
		log.Fatal(err)
	}
	result, err := seal.Run(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	kept := result.Checkpoint.String() // goes to the auditor
	fmt.Println(result.Sealed, "event sealed")

	checkpoints, err := seal.ParseCheckpoints(kept)
	if err != nil {
		log.Fatal(err)
	}
	report, err := seal.Verify(ctx, pool, &seal.VerifyOptions{Checkpoints: checkpoints})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("valid:", report.IsValid())

	events, err := seal.ProveTask(ctx, pool, seal.Archive{}, key, 0, 10, checkpoints[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("proof of leaf", events[0].Proof.Leaf, "checked:", events[0].Proof.Check(checkpoints[0]))
	// Output:
	// 1 event sealed
	// valid: true
	// proof of leaf 0 checked: <nil>
}
