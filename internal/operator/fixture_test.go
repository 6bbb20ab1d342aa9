package operator_test

import (
	"encoding/json"
	"testing"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
)

// fixture is the shared bundle, with a database only.
type fixture struct{ *servicetest.Bundle }

func setup(t testing.TB) *fixture {
	t.Helper()
	return &fixture{servicetest.NewDatabase(t)}
}

// reason returns the reason in an event.
func reason(t testing.TB, e ledger.Event) string {
	t.Helper()
	var data struct{ Reason string }
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatalf("%s %s: %v", e.Type, e.Data, err)
	}
	return data.Reason
}

// bury makes n dead tasks <prefix>-00000 and so on, whose errors have one fingerprint.
func (b *fixture) bury(prefix string, n int, message string) {
	b.T.Helper()
	b.Forge(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		select 1, 0, 0, 'enqueued', 'test.order', $1 || '-' || to_char(i, 'FM00000')
		  from generate_series(0, $2::integer - 1) i`, prefix, n)
	b.Forge(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data)
		select 2, 0, 0, 'buried', 'test.order', $1 || '-' || to_char(i, 'FM00000'),
		       json_build_object('error', json_build_object('type', 'T', 'message', $3::text || ' ' || i))
		  from generate_series(0, $2::integer - 1) i`, prefix, n, message)
}

// released returns the number of released events.
func (b *fixture) released() int {
	b.T.Helper()
	return servicetest.One[int](b, "select count(*)::integer from taskledger.event where type = 'released'")
}
