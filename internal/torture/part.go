package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/workers"
)

// partVariable is the environment variable with the [partConfig] of a child process, as JSON.
const partVariable = "TASKLEDGER_TORTURE_PART"

// partConfig configures a process of the stage.
type partConfig struct {
	Name    string // of the part, for example worker-2
	Program string // a key of programs

	Database string            // address for the login of its role
	Operator string            // address for the login of an operator; of producers
	NATS     map[string]string // addresses for each user of NATS
	History  string            // file

	Rate     int  // of a producer: tasks a second
	Run      int  // how often the part was started
	Overload bool // tasks take long, of one kind
	// CallerRuns: a producer runs tasks itself, where a limit has this policy.
	CallerRuns bool
	Seed       uint64 // of a producer
	Node       *nodeConfig
}

// part is a process of the stage, as it sees itself.
type part struct {
	partConfig
	history *history
	log     *slog.Logger
}

// programs are what processes run, until their context is done.
var programs = map[string]func(context.Context, *part) error{
	"producer":   produce,
	"worker":     work,
	"relay":      relay,
	"projector":  project,
	"scheduler":  schedule,
	"subscriber": subscribe,
	"nats":       runNode,
}

func isPart() bool { return os.Getenv(partVariable) != "" }

// runPart runs this process as a part, and returns its exit code. It ends when its parent ends, because that closes the
// standard input.
func runPart() int {
	ctx, stop := workers.SignalContext(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	p := &part{log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	err := json.Unmarshal([]byte(os.Getenv(partVariable)), &p.partConfig)
	if err == nil {
		p.history, err = openHistory(p.History, p.Name)
	}
	if err == nil {
		err = programs[p.Program](ctx, p)
	}
	if err != nil && ctx.Err() == nil {
		p.log.Error("ended", "error", err)
		return 1
	}
	return 0
}

// pool opens a pool of a number of connections.
func (p *part) pool(ctx context.Context, address string, conns int32) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	c.MaxConns = conns
	c.ConnConfig.ConnectTimeout = 5 * time.Second
	return pgxpool.NewWithConfig(ctx, c)
}

// runner is a service or a pool of workers.
type runner interface{ Run(context.Context) error }

// keepRunning runs a service until ctx is done. A service that returns an error is recorded, and started again, as
// `taskledger serve` does.
func (p *part) keepRunning(ctx context.Context, name string, start func() (runner, error)) {
	for ctx.Err() == nil {
		service, err := start()
		if err == nil {
			err = service.Run(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		p.history.add(entry{Op: opEnded, Err: fmt.Sprintf("%s: %v", name, err)})
		p.log.ErrorContext(ctx, "service ended", "service", name, "error", err)
		_ = loop.Sleep(ctx, time.Second)
	}
}
