package api

import (
	"encoding/json"
	"time"

	"github.com/taskledger/taskledger/internal/wire"
)

// restedHeartbeat is the time between two heartbeats in an answer that no gateway has given.
const restedHeartbeat = 10 * time.Second

// Poll is a request for work, for a server that answers it without the database.
type Poll struct {
	Wait     time.Duration // for a first task
	received string
}

// ParsePoll reads the body of POST /v1/work. It reports false if the body is invalid.
func ParsePoll(body []byte) (Poll, bool) {
	var ask wire.Ask
	if json.Unmarshal(body, &ask) != nil {
		return Poll{}, false
	}
	p := Poll{Wait: workWait, received: ask.Received}
	if ask.Wait != nil {
		p.Wait = time.Duration(max(0, min(*ask.Wait, maxWait.Seconds())) * float64(time.Second))
	}
	return p, true
}

// Empty returns the answer without tasks, which becomes JSON.
func (p Poll) Empty() any {
	return wire.Asked{Protocol: wire.Protocol, Batch: p.received, Tasks: []wire.Task{},
		HeartbeatEvery: restedHeartbeat.Seconds()}
}
