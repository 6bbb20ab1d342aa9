package main

import (
	"context"
	"encoding/json"

	"github.com/taskledger/taskledger/internal/natsserver"
)

// brokerSettings are the broker's beside nats-server's defaults.
type brokerSettings struct {
	Dir        string `json:"dir"`
	SyncAlways bool   `json:"sync_always"` // fsync before every acknowledgement
}

type brokerAnswer struct {
	URL string `json:"url"`
}

// playBroker is a NATS server with JetStream.
func playBroker(ctx context.Context, settings json.RawMessage, ready func(any)) error {
	var s brokerSettings
	if err := json.Unmarshal(settings, &s); err != nil {
		return err
	}
	server, err := natsserver.Start(natsserver.Config{Dir: s.Dir, SyncAlways: s.SyncAlways})
	if err != nil {
		return err
	}
	ready(brokerAnswer{server.URL()})
	<-ctx.Done()
	return server.Close()
}
