package operator_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A clone copies the args, the tags and the retry policy of the task, whatever its state, with causation, actor and
// reason. It copies neither deadline nor due time, and the task does not change.
func TestClone(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App)
	o := operator.New(ledgertest.As(t, pool, "operator"))
	for name, test := range map[string]struct {
		args   string
		binary bool
	}{"json": {args: `{"n" : 1}`}, "binary": {args: "\x00\xff{", binary: true}, "none": {}} {
		k := ledger.Key{Kind: "k", BizID: ledger.BizID(name)}
		var args json.RawMessage
		if test.args != "" {
			args = json.RawMessage(test.args)
		}
		options := &ledger.EnqueueOptions{
			Binary: test.binary, Retry: &ledger.RetryPolicy{Attempts: 3}, FinishBy: time.Now().Add(time.Hour),
			DataVersion: 3,
			Meta: ledger.Meta{
				Tags: []string{"summer"}, Extra: map[string]json.RawMessage{"order": json.RawMessage("17")},
			},
		}
		if _, err := ledger.Enqueue(t.Context(), pool, k, args, options); err != nil {
			t.Fatal(err)
		}
		ledgertest.Append(t, pool, k, ledger.EventStarted, ledger.EventSucceeded)
		before, err := ledger.History(t.Context(), pool, k)
		if err != nil {
			t.Fatal(err)
		}
		for _, isNew := range []bool{true, false} {
			answer, err := o.Clone(t.Context(), k, k.BizID+"-again", audit)
			if err != nil || answer.New != isNew || !answer.SameArgs || answer.State != ledger.StateAvailable {
				t.Errorf("%s: %+v, %v", name, answer, err)
			}
		}
		task, err := ledger.Load(t.Context(), pool, ledger.Key{Kind: "k", BizID: k.BizID + "-again"})
		clone, historyErr := ledger.History(t.Context(), pool, task.Key)
		if historyErr != nil || clone[0].DataVersion != 3 {
			t.Errorf("%s: version of data %d, %v", name, clone[0].DataVersion, historyErr)
		}
		hasTimes := !task.FinishBy.IsZero() || !task.DueAt.IsZero()
		if err != nil || task.Cause != k || task.Actor != audit.Actor || hasTimes {
			t.Errorf("%s: %+v, %v", name, task, err)
		}
		if task.Version != 1 || string(task.Args) != string(before[0].Data) {
			t.Errorf("%s: version %d, args %s, want %s", name, task.Version, task.Args, before[0].Data)
		}
		events, err := ledger.History(t.Context(), pool, task.Key)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"reason":"tried \u003cb\u003eit\u003c/b\u003e"`, `"tags":["summer"]`,
			`"attempts":3`, `"order":17`, `"causation":"` + before[0].ID()} {
			if !strings.Contains(string(events[0].Meta), want) {
				t.Errorf("%s: meta %s, want %s", name, events[0].Meta, want)
			}
		}
		if after, err := ledger.History(t.Context(), pool, k); err != nil || len(after) != len(before) {
			t.Errorf("%s: %d events of the task, %v, want %d", name, len(after), err, len(before))
		}
	}
	ledgertest.Enqueue(t, pool, ledger.Key{Kind: "k", BizID: "taken"}, `{"n": 2}`)
	_, err := o.Clone(t.Context(), ledger.Key{Kind: "k", BizID: "json"}, "taken", audit)
	var other *ledger.OtherArgsError
	if !errors.As(err, &other) || other.Existing.Key.BizID != "taken" {
		t.Errorf("a task with other args: %v", err)
	}
	_, err = o.Clone(t.Context(), ledger.Key{Kind: "k", BizID: "absent"}, "x", audit)
	if !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("an unknown task: %v", err)
	}
	var invalid *ledger.InvalidError
	_, err = o.Clone(t.Context(), ledger.Key{Kind: "k", BizID: "json"}, "", audit)
	if !errors.As(err, &invalid) {
		t.Errorf("an invalid key: %v", err)
	}
}
