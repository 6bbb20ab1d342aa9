package workers_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A handler gets the args and the deadline of its task, from the offer or, if they are larger, as the worker reads
// them.
func TestArgsOfHandlers(t *testing.T) {
	t.Parallel()
	note := func(size int) string { return `"` + strings.Repeat("x", size-2) + `"` }
	b := setup(t)
	b.Dispatch()
	for name, tc := range map[string]struct {
		args    string
		options *ledger.EnqueueOptions
	}{
		"object":                          {args: `{"to": "alice", "eur": 5}`},
		"the largest of an offer":         {args: note(512)},
		"larger than an offer":            {args: note(513)},
		"none":                            {},
		"bytes":                           {args: "\x01\x02", options: &ledger.EnqueueOptions{Binary: true}},
		"bytes that are larger as stored": {args: note(500), options: &ledger.EnqueueOptions{Binary: true}},
		"with a deadline":                 {args: "7", options: &ledger.EnqueueOptions{FinishBy: inAnHour()}},
		"larger, with a deadline":         {args: note(513), options: &ledger.EnqueueOptions{FinishBy: inAnHour()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			type call struct {
				Args        string
				HasDeadline bool
			}
			calls := make(chan call, 10)
			kind := ledger.MustKind[json.RawMessage](b.Kind().Name())
			b.Work(workers.Config{}, func(p *workers.Pool) error {
				return p.Register(workers.Handle(kind,
					func(ctx context.Context, _ pgx.Tx, _ *workers.Job, args json.RawMessage) error {
						at, _ := ctx.Deadline()
						calls <- call{Args: string(args), HasDeadline: time.Until(at) > 30*time.Minute}
						return nil
					}, &workers.KindConfig{Timeout: -1}))
			})
			k := ledger.Key{Kind: kind.Name(), BizID: "pay-2"}
			var args json.RawMessage
			if tc.args != "" {
				args = json.RawMessage(tc.args)
			}
			try(ledger.Enqueue(b.Context(), b.DB, k, args, tc.options))(t)
			want := call{Args: tc.args, HasDeadline: tc.options != nil && !tc.options.FinishBy.IsZero()}
			if diff := difference.Of(want, receive(b, "the handler", calls)); diff != "" {
				t.Errorf("the handler got (-want +got):\n%s", diff)
			}
			b.AwaitState(k, ledger.StateSucceeded)
		})
	}
}

func inAnHour() time.Time { return time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond) }
