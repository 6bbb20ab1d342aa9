package seal_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

// proved returns the documented event with a proof for the tree of a checkpoint.
func proved() (seal.Proof, seal.Checkpoint) {
	salt := []byte("sixteen letters.")
	e := documented()
	leaf := tlog.RecordHash(e.Record(e.Digest(salt)))
	other := tlog.RecordHash([]byte("other"))
	kept := seal.Checkpoint{Origin: "taskledger/x", Size: 2, Root: tlog.NodeHash(other, leaf)}
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

// A proof is read only in the form in which it is written: another program would read another value than the checked
// one.
func TestProofInAnotherForm(t *testing.T) {
	p, kept := proved()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := seal.ParseProof(text); err != nil || p.Check(kept) != nil {
		t.Fatalf("the proof is not valid: %v", err)
	}
	for name, change := range map[string][2]string{
		"null for 0":             {`"priority":0`, `"priority":null`},
		"no member for 0":        {`"priority":0,`, ``},
		"no member for null":     {`"partition":null,`, ``},
		"minus zero":             {`"priority":0`, `"priority":-0`},
		"a line break in base64": {`"salt":"`, `"salt":"\n`},
		"another base64":         {`Lg=="`, `Lh=="`},
		"another zone":           {`:00.123456Z"`, `:00.123456+00:00"`},
	} {
		changed := strings.Replace(string(text), change[0], change[1], 1)
		if changed == string(text) {
			t.Fatalf("%s: %q is not in %s", name, change[0], text)
		}
		_, err := seal.ParseProof([]byte(changed))
		if invalid := new(ledger.InvalidError); !errors.As(err, &invalid) {
			t.Errorf("%s: got %v for %s", name, err, changed)
		}
	}
}

// A record belongs to one event: no type contains a line break, by which the text of a later column could pass for the
// lines between.
func TestProofOfAnotherEvent(t *testing.T) {
	p, _ := proved()
	payload := "x\nrecorded_at 2020-01-01T00:00:00.000000Z\nlogin_id 9\nshard 1\ndata_version 1\npriority 0\n" +
		"order_key 1 y"
	p.Event.OrderKey = &payload
	record, err := p.Record()
	if err != nil {
		t.Fatal(err)
	}
	kept := seal.Checkpoint{Origin: "taskledger/x", Size: 1, Root: tlog.RecordHash(record)}
	p.Checkpoint, p.Leaf, p.Hashes = kept, 0, nil
	if err := p.Check(kept); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(record), "\ntype ")
	forgedType, _, _ := strings.Cut(rest, "\nrecorded_at 2020")
	key := "y"
	forged := p
	forged.Event.Type, forged.Event.OrderKey = forgedType, &key
	forged.Event.RecordedAt = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	forged.Event.LoginID, forged.Event.Shard = 9, 1
	if err := forged.Check(kept); !errors.Is(err, seal.ErrMismatch) {
		t.Errorf("the leaf of %s is also that of login %d at %s: %v", p.Event.Type, forged.Event.LoginID,
			forged.Event.RecordedAt, err)
	}
}
