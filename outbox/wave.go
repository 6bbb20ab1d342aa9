package outbox

import (
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// waves puts the n-th event of each task into wave n, in the order of the messages. The next event of a task is sent
// when the one before is acknowledged. So neither a message that the stream refuses or loses at a change of its leader,
// nor one of another relay in its place, lets a later event of its task come first.
func waves(messages []message) (waves [][]message) {
	events := make(map[ledger.Key]int, len(messages))
	for _, m := range messages {
		n := events[m.event.Key]
		events[m.event.Key]++
		if n == len(waves) {
			waves = append(waves, nil)
		}
		waves[n] = append(waves[n], m)
	}
	return waves
}

// expecting returns the messages of a wave, which the stream stores one after the other behind a sequence, or refuses.
func expecting(wave []message, last uint64) []*nats.Msg {
	msgs := make([]*nats.Msg, len(wave))
	for i := range wave {
		msgs[i] = wave[i].msg
	}
	stream.Expect(msgs, last)
	return msgs
}
