package outbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/erased.sql
var erasedSQL string

// erased is a task whose messages are to be deleted.
type erased struct {
	key      ledger.Key
	shard    ledger.Shard
	until    ledger.Position // no erased event is above it
	from, to uint64          // its messages are behind from, and not behind to
}

// eraseMessages deletes the messages of the tasks that were erased, according to the records in a page. All their
// messages come before that page, and later copies contain no texts. The list is in the ledger: a
// record alone, which an operator could write, deletes nothing. Until it is done the cursor stays, so a session that
// ends is repeated.
func (s *session) eraseMessages(ctx context.Context, page []ledger.Event) error {
	for _, e := range page {
		if e.Kind != operation.Kind || e.Version != 1 {
			continue
		}
		var o operation.Operation
		if err := json.Unmarshal(e.Data, &o); err != nil || o.Action != operation.EraseTasks {
			continue
		}
		tasks, err := s.readErased(ctx, o.Detail["erasure"])
		if err != nil {
			return err
		}
		for _, t := range tasks {
			if err := s.deleteMessages(ctx, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *session) readErased(ctx context.Context, id string) (tasks []erased, err error) {
	rows, err := s.relay.config.DB.Query(ctx, erasedSQL, id, s.mark.Created)
	if err != nil {
		return nil, pgerr.Explain("read an erasure", err)
	}
	var t erased
	var from, to int64
	columns := []any{(*string)(&t.key.Kind), (*string)(&t.key.BizID), (*int)(&t.shard), (*int64)(&t.until), &from, &to}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		t.from, t.to = uint64(from), uint64(to)
		tasks = append(tasks, t)
		return nil
	})
	if pgerr.Is(err, pgerr.InvalidTextRepresentation) {
		return nil, nil // an operator's record, not an erasure's
	}
	return tasks, pgerr.Explain("read an erasure", err)
}

// deleteMessages deletes the messages of a task. If the user of NATS may not delete messages, it logs that, and they
// stay until the stream removes them by age.
func (s *session) deleteMessages(ctx context.Context, t erased) error {
	filter := stream.PrefixOf(s.relay.config.NATS).Pattern(strconv.Itoa(int(t.shard)), "*", string(t.key.Kind))
	for seq := t.from + 1; ; seq++ {
		raw, err := s.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && raw.Sequence > t.to {
			return nil
		}
		if err != nil {
			return fmt.Errorf("search the messages of %s: %w", t.key, err)
		}
		seq = raw.Sequence
		m, err := stream.Decode(raw.Subject, raw.Header, nil)
		if err != nil || m.Key != t.key || m.Position > t.until || m.Source != s.encoder.source {
			continue
		}
		err = s.stream.SecureDeleteMsg(ctx, seq)
		if explained := relays.ExplainRequest(s.relay.js, err); errors.Is(explained, nats.ErrPermissionViolation) {
			s.relay.config.Logger.ErrorContext(ctx, "cannot delete the messages of an erased task, which the stream "+
				"removes by age: give the user relay the permissions of taskledger nats-config",
				"task", t.key.String(), "error", explained)
			return nil
		}
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("delete message %d: %w", seq, err)
		}
		fault.Point(fault.RelayErased)
	}
}
