package alarm_test

import (
	"errors"
	"testing"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/ledger"
)

// Tasks of the kind of alarms that are no alarms do not end a chain, and no program can enqueue one.
func TestForgedAlarmsSilenceNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := newWebhookServer(t).receiver("ops")
	for _, id := range []string{"ops/999999999999", "ops/x", "ops/1000000000000"} {
		b.exec(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, data)
			values (1, 0, 0, 'enqueued', $1, $2, 'forger', '{"items":[{"text":"ALL PAYMENTS ARE DEAD"}]}')`,
			string(alarm.Kind), id)
	}
	for range 2 {
		result, err := alarm.Test(t.Context(), b.db, r)
		if err != nil || result.State != ledger.StateSucceeded {
			t.Errorf("an alarm is %s, %v", result.State, err)
		}
	}
	var invalid *ledger.InvalidError
	k := ledger.Key{Kind: alarm.Kind, BizID: "ops/0000000000000000009"}
	if _, err := ledger.Enqueue(t.Context(), b.db, k, nil, nil); !errors.As(err, &invalid) {
		t.Errorf("an enqueue of an alarm by a program: %v", err)
	}
}
