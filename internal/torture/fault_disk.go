package main

import (
	"context"
	"math/rand/v2"
	"time"
)

var diskFaults = []fault{
	{
		name: "disk-postgres", what: "the disk of PostgreSQL is full", on: "postgres",
		least: time.Second, most: 5 * time.Second,
		begin: func(_ context.Context, s *stage, _ *rand.Rand) (act, error) {
			d := s.disks["postgres"]
			if !d.isSmall() {
				return act{}, errSkipped
			}
			clear, err := d.fill()
			return act{"primary", func(ctx context.Context) error {
				if err := clear(); err != nil {
					return err
				}
				return s.db.revive(ctx)
			}}, err
		},
	},
	{
		name: "disk-nats", what: "the disk of a NATS server is full; it starts again when there is room", on: "nats",
		least: time.Second, most: 5 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			p := one(random, s.nodes)
			d := s.disks[p.config.Name]
			if !d.isSmall() {
				return act{}, errSkipped
			}
			clear, err := d.fill()
			return act{p.String(), func(context.Context) error {
				if err := clear(); err != nil {
					return err
				}
				if err := p.kill(); err != nil { // it has disabled JetStream, until it starts again
					return err
				}
				return p.start()
			}}, err
		},
	},
}
