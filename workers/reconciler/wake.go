package reconciler

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/installation.sql
var installationSQL string

// maxWoken bounds the memory of messages that were sent again.
const maxWoken = 10_000

// firstWakeDelay is the delay until a message is sent once more. It doubles each time: a worker that has the task in
// flight keeps each of them.
const firstWakeDelay = 5 * time.Second

// woken is a task whose message was sent again.
type woken struct {
	version ledger.Version // of the message
	at      time.Time
	delay   time.Duration // until it may be sent once more
}

// wakeAll sends the messages of running tasks again that are gone while their workers live. A worker may have ended
// such a task in a past that a restore or a fail-over has undone, so that no lease will expire. Whichever worker
// receives the message, the one that began gets it: it continues the task, or still has it in flight and acknowledges
// the message at the end.
func (r *Reconciler) wakeAll(ctx context.Context, kind ledger.Kind, lost []lostTask) error {
	if len(lost) == 0 {
		return nil
	}
	var installation string
	if err := r.config.DB.QueryRow(ctx, installationSQL).Scan(&installation); err != nil {
		return pgerr.Explain("read the installation", err)
	}
	for _, t := range lost {
		k := ledger.Key{Kind: kind, BizID: t.id}
		last, found := r.woken[k]
		if found = found && last.version == t.waking; found && time.Since(last.at) < last.delay {
			continue
		}
		m, err := r.message(ctx, k, t.waking, stream.Source(installation))
		if err != nil { // other tasks do not wait for this one
			r.config.Logger.WarnContext(ctx, "cannot make the message of a running task again",
				"kind", string(k.Kind), "biz_id", string(k.BizID), "error", err)
			continue
		}
		if _, err := r.js.PublishMsg(ctx, m); err != nil {
			return natsError{fmt.Errorf("send the message of %s again: %w", k, err)}
		}
		r.config.Logger.WarnContext(ctx, "the message of a running task was gone, and is sent again to its worker",
			"kind", string(k.Kind), "biz_id", string(k.BizID))
		next := woken{version: t.waking, at: time.Now(), delay: firstWakeDelay}
		if found {
			next.delay = min(2*last.delay, maxReleaseDelay)
		}
		if len(r.woken) >= maxWoken {
			clear(r.woken)
		}
		r.woken[k] = next
	}
	return nil
}

// message returns the message of an event, to be sent again.
func (r *Reconciler) message(
	ctx context.Context, k ledger.Key, version ledger.Version, source string,
) (*nats.Msg, error) {
	history, err := ledger.History(ctx, r.config.DB, k)
	if err != nil {
		return nil, err
	}
	if int(version) > len(history) {
		return nil, fmt.Errorf("%d events, and no version %d", len(history), version)
	}
	args, err := history[0].Payload()
	if err != nil {
		return nil, err
	}
	m := stream.Encode(history[version-1], args, source, 0)
	stream.Enclose(m, history[0].Meta)
	return m, nil
}
