package ledger_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// The verbs %v, %+v and %s print the state and the error of a task or an event, not only its key.
func TestString(t *testing.T) {
	t.Parallel()
	key := ledger.MustKind[int]("coupon.send").Key("A-1")
	failed := ledger.Event{
		Key: key, Version: 6, Attempt: 3, Type: ledger.EventFailed, RecordedAt: time.Unix(0, 0),
		Data: json.RawMessage(`{"error":{"message":"card refused"}}`),
	}
	for _, test := range []struct {
		value any
		want  string
	}{
		{
			value: ledger.Task{Key: key, State: ledger.StateAvailable, Version: 1},
			want:  "coupon.send/A-1 available, version 1, attempt 0",
		},
		{
			value: ledger.Task{Key: key, State: ledger.StateDead, Version: 7, Attempt: 3, Error: "card refused"},
			want:  "coupon.send/A-1 dead, version 7, attempt 3: card refused",
		},
		{
			value: ledger.Event{Key: key, Version: 1, Type: ledger.EventEnqueued},
			want:  "coupon.send/A-1 version 1 enqueued, attempt 0",
		},
		{
			value: failed,
			want:  "coupon.send/A-1 version 6 failed, attempt 3: card refused",
		},
	} {
		for _, verb := range []string{"%v", "%+v", "%s"} {
			if got := fmt.Sprintf(verb, test.value); got != test.want {
				t.Errorf("%s: %s, want %s", verb, got, test.want)
			}
		}
	}
}
