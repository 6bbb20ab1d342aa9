package outbox

import (
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// waves puts the n-th event of each task into wave n, in the order of the messages. The next event of a task is sent
// when the previous one is acknowledged. So a later event of a task never comes first, even if the stream refuses a
// message or loses it at a change of its leader, or another relay's message takes its place.
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
