package seal_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/seal"
)

// proved returns the documented event with a proof for the tree of a checkpoint.
func proved() (seal.Proof, seal.Checkpoint) {
	salt := []byte("sixteen letters.")
	e := documented()
	leaf := tlog.RecordHash(e.Record(e.Digest(salt)))
	other := tlog.RecordHash([]byte("other"))
	kept := seal.Checkpoint{Origin: "taskledger x", Size: 2, Root: tlog.NodeHash(other, leaf)}
	return seal.Proof{Checkpoint: kept, Leaf: 1, Hashes: tlog.RecordProof{other}, Salt: salt, Event: e}, kept
}

// A proof whose true values are in names of another case, where encoding/json looks for them, and whose forged values
// are in the names that readers look for, is refused. Members that are null are left out in their place.
func TestProofWithNamesOfAnotherCase(t *testing.T) {
	p, kept := proved()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.NewReplacer(`"data":`, `"DATA":`, `"actor":`, `"ACTOR":`,
		`"order_key":null`, `"data":"{\"percent\":99}"`, `"partition":null`, `"actor":"mallory"`).Replace(string(text))
	var read struct{ Event map[string]any }
	if err := json.Unmarshal([]byte(forged), &read); err != nil || read.Event["actor"] != "mallory" {
		t.Fatalf("the forged actor is not in %s: %v", forged, err)
	}
	p, err = seal.ParseProof([]byte(forged))
	if invalid := new(ledger.InvalidError); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "DATA") {
		t.Errorf("a forged proof by %s was read: %v, checked: %v", *p.Event.Actor, err, p.Check(kept))
	}
}
