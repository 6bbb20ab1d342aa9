package main

import (
	"context"
	"math/rand/v2"
	"time"
)

var processFaults = []fault{
	{
		name: "kill", what: "SIGKILL of a part, which starts again", on: "parts",
		least: 50 * time.Millisecond, most: 2 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			p := one(random, s.parts)
			return act{p.String(), func(context.Context) error { return p.start() }}, p.kill()
		},
	},
	{
		name: "kill-worker", what: "SIGKILL of a worker, which starts again", on: "parts",
		least: 50 * time.Millisecond, most: time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			p := one(random, s.of("worker"))
			return act{p.String(), func(context.Context) error { return p.start() }}, p.kill()
		},
	},
	{
		name: "pause", what: "SIGSTOP of a part, and SIGCONT", on: "parts",
		least: 500 * time.Millisecond, most: 8 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			return paused(one(random, s.parts))
		},
	},
	{
		name: "pause-worker", what: "SIGSTOP of a worker for longer than its LeaseTTL, and SIGCONT", on: "parts",
		least: leaseTTL + leaseTTL/2, most: 3 * leaseTTL,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			return paused(one(random, s.of("worker")))
		},
	},
	{
		name: "kill-nats", what: "SIGKILL of a NATS server, which starts again", on: "nats",
		least: 100 * time.Millisecond, most: 4 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			p := one(random, s.nodes)
			return act{p.String(), func(context.Context) error { return p.start() }}, p.kill()
		},
	},
	{
		name: "pause-nats", what: "SIGSTOP of a NATS server, and SIGCONT", on: "nats",
		least: 500 * time.Millisecond, most: 8 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			return paused(one(random, s.nodes))
		},
	},
}

func paused(p *process) (act, error) {
	return act{p.String(), func(context.Context) error { return p.signal(resume) }}, p.signal(pause)
}
