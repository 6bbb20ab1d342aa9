package main

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
)

// tryContender runs one short trial of a contender and returns a figure of it.
func tryContender(t *testing.T, measureName, system, metric string) float64 {
	t.Helper()
	c := config{quick: true, scale: 0.5, rounds: 1, noSync: true, only: []string{measureName}}
	server, err := openServer(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.close() }()
	x, err := findContender(c, measureName, system)
	if err != nil {
		t.Fatal(err)
	}
	short := &trial{config: c, server: server, tuning: x.tune[0]}
	figures, err := runTrial(context.WithoutCancel(t.Context()), short, x)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(figures, func(f figure) bool { return f.metric == metric })
	if i < 0 {
		t.Fatalf("no %s of %s", metric, system)
	}
	return figures[i].value
}

func findContender(c config, measureName, system string) (contender, error) {
	for _, m := range c.chosen() {
		for _, x := range m.contenders {
			if m.name == measureName && x.system == system {
				return x, nil
			}
		}
	}
	return contender{}, errors.New("no such contender")
}

// A trial ends although its broker does not stop, as one with 1,000 consumers on a busy machine.
func TestTrialEndsWithABrokerThatDoesNotStop(t *testing.T) {
	c := config{quick: true, scale: 1, noSync: true}
	server, err := openServer(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.close() }()
	short := &trial{config: c, server: server}
	if _, err := broker(t.Context(), short, false); err != nil {
		t.Fatal(err)
	}
	if err := short.broker.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := short.close(); err != nil {
		t.Error(err)
	}
}

// River starts a handler when it is notified, long before it polls.
func TestRiverIsNotified(t *testing.T) {
	poll := float64(riverPaces[everydayPace].poll.Milliseconds())
	if median := tryContender(t, "everyday-50", peerRiver, p50); median > poll/4 {
		t.Errorf("p50 is %v ms; a worker that only polls has %v ms", median, poll/2)
	}
}

// At an even rate the floor writes a transaction for each enqueue, and few others: windows and single outcomes have no
// commit of their own.
func TestFloorCommitsRarely(t *testing.T) {
	if perSecond := tryContender(t, "everyday-200", floorPipeline, writesMetric); perSecond > 2*200 {
		t.Errorf("%v write transactions a second at 200 tasks a second", perSecond)
	}
}
