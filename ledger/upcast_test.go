package ledger_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func replaced(old, with string) func(ledger.Event) (json.RawMessage, error) {
	return func(e ledger.Event) (json.RawMessage, error) {
		return json.RawMessage(strings.ReplaceAll(string(e.Data), old, with)), nil
	}
}

func TestUpcasts(t *testing.T) {
	t.Parallel()
	enqueued := func(kind ledger.Kind, version int) ledger.Shape {
		return ledger.Shape{Kind: kind, Type: ledger.EventEnqueued, Version: version}
	}
	upcasts := ledger.Upcasts{
		enqueued("", 1):  replaced("price", "cents"),
		enqueued("", 2):  replaced("cents", "amount"),
		enqueued("b", 1): replaced("price", "euros"),
		enqueued("c", 1): func(ledger.Event) (json.RawMessage, error) { panic("no") },
		enqueued("d", 1): func(ledger.Event) (json.RawMessage, error) { return nil, errors.New("too old") },
		enqueued("e", 1): func(ledger.Event) (json.RawMessage, error) { return json.RawMessage(`{`), nil },
	}
	if err := upcasts.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		kind    ledger.Kind
		version int
		data    string // want
		err     string
	}{
		{kind: "a", version: 1, data: `{"amount":1}`},
		{kind: "a", version: 2, data: `{"price":1}`},
		{kind: "a", version: 3, data: `{"price":1}`},
		{kind: "b", version: 1, data: `{"euros":1}`},
		{kind: "c", version: 1, err: "c/1/1@0: data version 1 cannot be upcast: panic: no"},
		{kind: "d", version: 1, err: "too old"},
		{kind: "e", version: 1, err: "invalid JSON"},
	} {
		e := ledger.Event{Key: ledger.Key{Kind: test.kind, BizID: "1"}, Version: 1, Type: ledger.EventEnqueued,
			DataVersion: test.version, Data: json.RawMessage(`{"price":1}`)}
		e.RecordedAt = e.RecordedAt.AddDate(1969, 0, 0)
		all := []ledger.Event{e}
		have, err := upcasts.All(all)
		if test.err != "" {
			var upcast *ledger.UpcastError
			if !errors.As(err, &upcast) || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v, want %s", test.kind, err, test.err)
			}
			continue
		}
		if err != nil || string(have[0].Data) != test.data || have[0].DataVersion != 3 {
			t.Errorf("%s, version %d: %+v, %v", test.kind, test.version, have, err)
		}
		if string(all[0].Data) != `{"price":1}` {
			t.Errorf("%s: the argument was changed: %s", test.kind, all[0].Data)
		}
	}
	other := ledger.Event{Type: ledger.EventFailed, DataVersion: 1, Data: json.RawMessage(`{}`)}
	if have, err := upcasts.Event(other); err != nil || have.DataVersion != 1 {
		t.Errorf("an event of another type: %+v, %v", have, err)
	}
	for _, invalid := range []ledger.Upcasts{
		{{Type: "none", Version: 1}: replaced("", "")}, {enqueued("", 0): replaced("", "")}, {enqueued("", 1): nil},
	} {
		if invalid.Validate() == nil {
			t.Errorf("%v is valid", invalid)
		}
	}
}

// Whatever reads events applies the upcasts of this package.
func TestReadingUpcasts(t *testing.T) {
	pool := ledgertest.Pool(t)
	key := ledger.Key{Kind: "a", BizID: "1"}
	if _, err := ledger.Enqueue(t.Context(), pool, key, json.RawMessage(`{"price":1}`), nil); err != nil {
		t.Fatal(err)
	}
	defer ledger.SetUpcasts(ledger.Upcasts{
		{Type: ledger.EventEnqueued, Version: 1}: replaced("price", "cents"),
	})()
	task, err := ledger.Load(t.Context(), pool, key)
	if err != nil || string(task.Args) != `{"cents":1}` {
		t.Errorf("args %s, %v", task.Args, err)
	}
	defer ledger.SetUpcasts(ledger.Upcasts{
		{Type: ledger.EventEnqueued, Version: 1}: func(ledger.Event) (json.RawMessage, error) { panic("bug") },
	})()
	var upcast *ledger.UpcastError
	if _, err := ledger.History(t.Context(), pool, key); !errors.As(err, &upcast) {
		t.Errorf("a function that panics: %v", err)
	}
}
