package outbox

import (
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
)

func TestWaves(t *testing.T) {
	t.Parallel()
	var messages []message
	for _, e := range []struct {
		id      ledger.BizID
		version ledger.Version
	}{
		{id: "a", version: 1}, {id: "a", version: 2}, {id: "b", version: 1}, {id: "a", version: 3},
		{id: "b", version: 2},
	} {
		event := &ledger.Event{Key: ledger.Key{Kind: "k", BizID: e.id}, Version: e.version}
		messages = append(messages, message{event: event})
	}
	var got [][]string
	for _, wave := range waves(messages) {
		var ids []string
		for _, m := range wave {
			ids = append(ids, m.event.Key.String()+"/"+string(rune('0'+m.event.Version)))
		}
		got = append(got, ids)
	}
	if diff := difference.Of([][]string{{"k/a/1", "k/b/1"}, {"k/a/2", "k/b/2"}, {"k/a/3"}}, got); diff != "" {
		t.Errorf("waves (-want +got):\n%s", diff)
	}
}
