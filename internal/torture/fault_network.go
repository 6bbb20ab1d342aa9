package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"
)

var networkFaults = []fault{
	{
		name: "cut", what: "nothing passes between a part and PostgreSQL, or NATS; connections stay open", on: "links",
		least: 500 * time.Millisecond, most: 8 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			links, target := drawLinks(s, random)
			return act{target, each(links, (*link).stop)}, nil
		},
	},
	{
		name: "delay", what: "packets between a part and PostgreSQL, or NATS, take 20 to 200 ms longer", on: "links",
		least: time.Second, most: 6 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			links, target := drawLinks(s, random)
			delay := time.Duration(20+random.IntN(180)) * time.Millisecond
			return act{target, each(links, func(l *link) func() { return l.slow(delay) })}, nil
		},
	},
	{
		name: "reset", what: "connections of a part to PostgreSQL, or NATS, are reset twice a second", on: "links",
		least: time.Second, most: 5 * time.Second,
		begin: func(ctx context.Context, s *stage, random *rand.Rand) (act, error) {
			links, target := drawLinks(s, random)
			return act{target, repeat(ctx, 500*time.Millisecond, func(context.Context) {
				for _, l := range links {
					l.reset()
				}
			})}, nil
		},
	},
	{
		name: "commit", what: "connections of a part end between COMMIT and its answer", on: "links",
		least: time.Second, most: 4 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			p := one(random, s.parts)
			return act{p.String(), each(s.linksOf(p, "postgres"), (*link).loseCommits)}, nil
		},
	},
	{
		name: "partition", what: "a NATS server is cut off from the others", on: "nats",
		least: time.Second, most: 8 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			name := one(random, s.nodes).config.Name
			var links []*link
			for _, l := range s.routes {
				if l.from == name || l.to == name {
					links = append(links, l)
				}
			}
			return act{name, each(links, (*link).stop)}, nil
		},
	},
}

// drawLinks draws a part and one of its servers: PostgreSQL, or all nodes of NATS.
func drawLinks(s *stage, random *rand.Rand) ([]*link, string) {
	p, server := one(random, s.parts), one(random, []string{"postgres", "nats"})
	return s.linksOf(p, server), strings.Join([]string{p.String(), server}, "-")
}

// each begins a fault on links, and returns the cure of all.
func each(links []*link, begin func(*link) (cure func())) func(context.Context) error {
	var cures []func()
	for _, l := range links {
		cures = append(cures, begin(l))
	}
	return func(context.Context) error {
		for _, cure := range cures {
			cure()
		}
		return nil
	}
}
