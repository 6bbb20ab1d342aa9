package workers_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A client that may publish sends the message of a task before the relay does, with other args, another deadline and
// another envelope. The handler gets what the ledger holds.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	const payee = `{"to": "alice", "eur": 5}`
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	note := func(size int) string { return `"` + strings.Repeat("x", size-2) + `"` }
	sum := func(args string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(args))) }
	for _, tc := range []struct {
		name    string
		args    string
		options *ledger.EnqueueOptions
		body    string            // forged; "" for that of the ledger
		header  map[string]string // forged
		genuine bool
	}{
		{name: "args", args: payee, body: `{"to": "mallory", "eur": 500000}`},
		{name: "no args", args: payee, body: " "},
		{
			name: "a deadline that has passed", args: payee,
			header: map[string]string{"ce-taskfinishby": "2020-01-01T00:00:00Z"},
		},
		{
			name: "no deadline", args: payee, options: &ledger.EnqueueOptions{FinishBy: later},
			header: map[string]string{"ce-taskfinishby": ""},
		},
		{name: "envelope", args: payee, header: map[string]string{"watermill": `{"uuid":"x"}`}},
		{
			name: "bytes", args: "\x01\x02", options: &ledger.EnqueueOptions{Binary: true},
			body: `"AQI="`, // the bytes as the ledger stores them
		},
		{name: "args of which the ledger returns the hash", args: note(513), body: note(514)},
		{name: "the hash in place of the args", args: note(513), body: sum(note(513))},
		{name: "genuine", args: payee, genuine: true},
		{name: "genuine, the largest that are compared", args: note(512), genuine: true},
		{name: "genuine, by their hash", args: note(513), genuine: true},
		{
			name: "genuine bytes, by their hash", args: note(500), options: &ledger.EnqueueOptions{Binary: true},
			genuine: true,
		},
		{name: "genuine without args", genuine: true},
		{name: "genuine bytes", args: "\x01\x02", options: &ledger.EnqueueOptions{Binary: true}, genuine: true},
		{name: "genuine with a deadline", args: payee, options: &ledger.EnqueueOptions{FinishBy: later}, genuine: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			hook := &noticer{}
			type call struct {
				Args, Envelope string
				HasDeadline    bool
			}
			calls := make(chan call, 10)
			kind := ledger.MustKind[json.RawMessage](order.Name())
			w := b.Work(workers.Config{Hooks: []workers.Hook{hook}}, func(p *workers.Pool) error {
				return workers.Register(p, kind,
					func(ctx context.Context, _ pgx.Tx, job *workers.Job, args json.RawMessage) error {
						at, _ := ctx.Deadline()
						calls <- call{
							Args: string(args), Envelope: job.Envelope,
							HasDeadline: !at.IsZero() && time.Until(at) > 30*time.Minute,
						}
						return nil
					}, &workers.KindConfig{Timeout: -1})
			})
			k := ledger.Key{Kind: order.Name(), BizID: "pay-2"}
			var args json.RawMessage
			if tc.args != "" {
				args = json.RawMessage(tc.args)
			}
			try(ledger.Enqueue(b.Context(), b.As("producer"), k, args, tc.options))(t)
			e := b.History(k)[0]
			m := stream.Encode(
				e,
				try(e.Payload())(t),
				stream.Source(one[string](b, "select taskledger.installation()")),
				1,
			)
			stream.Enclose(m, e.Meta)
			if tc.body != "" {
				m.Data = []byte(tc.body)
			}
			for name, value := range tc.header {
				m.Header.Set(name, value)
				if value == "" {
					m.Header.Del(name)
				}
			}
			try(b.JS.PublishMsg(b.Context(), m))(t)
			want := call{Args: tc.args, HasDeadline: tc.options != nil && !tc.options.FinishBy.IsZero()}
			select {
			case got := <-calls:
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the handler got (-want +got):\n%s", diff)
				}
			case <-b.Context().Done():
				t.Fatal("the handler was not called")
			}
			b.AwaitState(k, ledger.StateSucceeded)
			w.Stop()
			notices := map[workers.Notice]int{workers.NoticeForged: 1}
			if tc.genuine {
				notices = nil
			}
			if diff := cmp.Diff(notices, hook.seen); diff != "" {
				t.Errorf("noticed (-want +got):\n%s", diff)
			}
		})
	}
}
