package operator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
)

// audit is the author of the changes in these tests.
var audit = operator.Audit{Actor: "alice", Reason: "tried <b>it</b>"}

var allStates = []ledger.State{
	ledger.StateAvailable, ledger.StateScheduled, ledger.StateRunning, ledger.StateRetrying, ledger.StateSucceeded,
	ledger.StateDead, ledger.StateCancelled, ledger.StateExpired, ledger.StateDiscarded,
}

// verbs are the changes that an operator makes, to one task and to many, and the states that allow them.
var verbs = []struct {
	name   string
	one    func(context.Context, *operator.Operator, ledger.Key) (ledger.Event, error)
	all    func(context.Context, *operator.Operator, operator.Filter) (operator.BulkResult, error)
	event  ledger.EventType
	states string
}{
	{
		name:   "release",
		event:  ledger.EventReleased,
		states: "scheduled retrying dead cancelled expired discarded",
		one: func(ctx context.Context, o *operator.Operator, k ledger.Key) (ledger.Event, error) {
			return o.Release(ctx, k, audit)
		},
		all: func(ctx context.Context, o *operator.Operator, f operator.Filter) (operator.BulkResult, error) {
			return o.ReleaseAll(ctx, f, audit, nil)
		},
	}, {
		name:   "bury",
		event:  ledger.EventBuried,
		states: "available scheduled running retrying",
		one: func(ctx context.Context, o *operator.Operator, k ledger.Key) (ledger.Event, error) {
			return o.Bury(ctx, k, audit)
		},
		all: func(ctx context.Context, o *operator.Operator, f operator.Filter) (operator.BulkResult, error) {
			return o.BuryAll(ctx, f, audit, nil)
		},
	}, {
		name:   "cancel",
		event:  ledger.EventCancelled,
		states: "available scheduled running retrying",
		one: func(ctx context.Context, o *operator.Operator, k ledger.Key) (ledger.Event, error) {
			return o.Cancel(ctx, k, audit)
		},
		all: func(ctx context.Context, o *operator.Operator, f operator.Filter) (operator.BulkResult, error) {
			return o.CancelAll(ctx, f, audit, nil)
		},
	}, {
		name:   "reschedule",
		event:  ledger.EventScheduled,
		states: "available scheduled retrying",
		one: func(ctx context.Context, o *operator.Operator, k ledger.Key) (ledger.Event, error) {
			return o.Reschedule(ctx, k, ledger.Due{In: 2 * time.Hour}, audit)
		},
		all: func(ctx context.Context, o *operator.Operator, f operator.Filter) (operator.BulkResult, error) {
			return o.RescheduleAll(ctx, f, ledger.Due{In: 2 * time.Hour}, audit, nil)
		},
	},
}

// Each verb changes tasks in the states that allow it, with actor and reason in the event, and returns an error
// with the state in the others. That holds for one task and for many.
func TestOperatorVerbs(t *testing.T) {
	t.Parallel()
	for _, verb := range verbs {
		for _, many := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/many=%v", verb.name, many), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				o := b.Operator()
				keys := map[ledger.State]ledger.Key{}
				for _, s := range allStates {
					keys[s] = b.EnqueueIn(s, string(s))
				}
				if many {
					b.Project()
				}
				for _, s := range allStates {
					allowed := strings.Contains(verb.states, string(s))
					before := b.Task(keys[s])
					var e ledger.Event
					var err error
					if many {
						var tally operator.BulkResult
						tally, err = verb.all(b.Context(), o, operator.Filter{State: s})
						if diff := difference.Of(operator.BulkResult{Found: 1, Done: 1}, tally); allowed && diff != "" {
							t.Errorf("%s (-want +got):\n%s", s, diff)
						}
						history := b.History(keys[s])
						e = history[len(history)-1]
					} else {
						e, err = verb.one(b.Context(), o, keys[s])
					}
					var transition *ledger.TransitionError
					var invalid *ledger.InvalidError
					switch {
					case !allowed && b.Task(keys[s]).Version != before.Version:
						t.Errorf("%s: the task was changed", s)
					case !allowed && many && (!errors.As(err, &invalid) || invalid.Field != "state"):
						t.Errorf("%s: %v, want an InvalidError for the state", s, err)
					case !allowed && !many && (!errors.As(err, &transition) || transition.State != s):
						t.Errorf("%s: %v, want a TransitionError that names the state", s, err)
					case allowed && err != nil:
						t.Errorf("%s: %v", s, err)
					case allowed && (e.Type != verb.event || e.Actor != "alice" || reason(t, e) != audit.Reason):
						t.Errorf("%s: %s by %s: %s", s, e.Type, e.Actor, e.Data)
					case allowed && b.Task(keys[s]).Version != e.Version:
						t.Errorf("%s: it returned event %d, the last one is %d", s, e.Version, b.Task(keys[s]).Version)
					}
				}
			})
		}
	}
}

func TestOperatorRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.Operator()
	k := b.EnqueueIn(ledger.StateAvailable, "o-1")
	ctx := b.Context()
	absent := ledger.Key{Kind: "test.order", BizID: "absent"}
	if _, err := o.Cancel(ctx, absent, audit); !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("unknown task: %v", err)
	}
	bulk := func(f operator.Filter) error { _, err := o.BuryAll(ctx, f, audit, nil); return err }
	bulkReason := func(reason string) error {
		_, err := o.BuryAll(ctx, operator.Filter{}, operator.Audit{Reason: reason}, nil)
		return err
	}
	one := func(due ledger.Due, audit operator.Audit) error {
		_, err := o.Reschedule(ctx, k, due, audit)
		return err
	}
	long := strings.Repeat("x", operation.MaxReasonBytes+1)
	for name, test := range map[string]struct {
		err   error
		field string
	}{
		"kind":          {err: bulk(operator.Filter{Kind: "a\x00b"}), field: "kind"},
		"state":         {err: bulk(operator.Filter{State: "gone"}), field: "state"},
		"fingerprint":   {err: bulk(operator.Filter{Fingerprint: "0123456789abcdef"}), field: "fingerprint"},
		"older than":    {err: bulk(operator.Filter{OlderThan: -1}), field: "older than"},
		"limit":         {err: bulk(operator.Filter{Limit: -1}), field: "limit"},
		"no time":       {err: one(ledger.Due{}, audit), field: "at"},
		"two times":     {err: one(ledger.Due{At: time.Now(), In: time.Second}, audit), field: "at"},
		"negative":      {err: one(ledger.Due{In: -time.Second}, audit), field: "in"},
		"the year 9999": {err: one(ledger.Due{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, audit), field: "at"},
		"long reason":   {err: one(ledger.Due{In: 1}, operator.Audit{Reason: long}), field: "reason"},
		"reason UTF-8":  {err: one(ledger.Due{In: 1}, operator.Audit{Reason: "\xff"}), field: "reason"},
		"reason NUL":    {err: bulkReason("a\x00b"), field: "reason"},
		"actor":         {err: one(ledger.Due{In: 1}, operator.Audit{Actor: "a\x1b[2J"}), field: "actor"},
	} {
		var invalid *ledger.InvalidError
		if !errors.As(test.err, &invalid) || invalid.Field != test.field {
			t.Errorf("%s: %v, want an InvalidError for %q", name, test.err, test.field)
		}
	}
	if task := b.Task(k); task.Version != 1 {
		t.Errorf("the task was changed: %v", b.EventTypes(k))
	}
}

// Tasks whose key is invalid, which only the owner of the schema can insert, can be ended like others.
func TestInvalidKeysCanBeEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keys := []ledger.Key{
		{Kind: "", BizID: ""}, {Kind: "a..b", BizID: ""}, {Kind: "a..b", BizID: "x"}, {Kind: "*", BizID: "a\r\nb"},
		{Kind: "a/b", BizID: "x"}, {Kind: ledger.Kind(strings.Repeat("k", 200)), BizID: "x"},
	}
	for _, k := range keys {
		b.Forge(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
			values (1, 0, 0, 'enqueued', $1, $2)`, string(k.Kind), string(k.BizID))
	}
	b.Project()
	o := operator.New(b.As("operator"))
	for _, k := range keys[3:] {
		if _, err := o.Cancel(b.Context(), k, audit); err != nil {
			t.Errorf("%q: %v", k, err)
		}
	}
	result, err := o.CancelAll(b.Context(), operator.Filter{Kind: "a..b"}, audit, nil)
	if diff := difference.Of(operator.BulkResult{Found: 2, Done: 2}, result); err != nil || diff != "" {
		t.Errorf("all of a kind: %v (-want +got):\n%s", err, diff)
	}
	if _, err := o.CancelAll(b.Context(), operator.Filter{State: ledger.StateAvailable}, audit, nil); err != nil {
		t.Error(err)
	}
	for _, k := range keys {
		if task := b.Task(k); task.State != ledger.StateCancelled {
			t.Errorf("%q is %s, want cancelled", k, task.State)
		}
	}
}
