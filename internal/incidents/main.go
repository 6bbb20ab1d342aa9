// Program incidents runs a shop with one of five faults. It measures how soon a person finds and mends the fault with
// the console alone.
//
//	make build
//	go run ./internal/incidents -log incident.log 1
//
// It starts taskledger serve with its own servers in a temporary directory, and a shop of three workers that takes four
// orders a second. After the warm-up it makes the fault; when the fault has had some time, it prints a link to the
// console. The log records the fault, every act of the person, what colleagues do in answer, and the cure. The program
// ends with Ctrl-C, and then prints the time from the link to the first act and to the cure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/workers"
)

// person is the actor of the acts of the person on call.
const person = "oncall"

// options are the flags of the program.
type options struct {
	binary, listen, logFile string
	warmUp, delay           time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.binary, "taskledger", "bin/taskledger", "the program taskledger")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:8090", "address of the console")
	flag.StringVar(&o.logFile, "log", "", "file that the log is appended to (default: standard error)")
	flag.DurationVar(&o.warmUp, "warm-up", time.Minute, "how long the shop works before the fault")
	flag.DurationVar(&o.delay, "delay", 150*time.Second, "time from the fault to the link")
	flag.Parse()
	n, err := strconv.Atoi(flag.Arg(0))
	if err != nil || n < 1 || n > len(incidents) || flag.NArg() != 1 {
		fmt.Fprintf(os.Stderr, "usage: incidents [flags] NUMBER, from 1 to %d\n", len(incidents))
		os.Exit(2)
	}
	ctx, stop := workers.SignalContext(context.Background())
	defer stop()
	if err := run(ctx, o, incidents[n-1]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "incidents:", err)
		os.Exit(1)
	}
}

// run plays an incident until ctx is done.
func run(ctx context.Context, o options, i incident) (err error) {
	var to io.Writer = os.Stderr
	if o.logFile != "" {
		file, err := os.OpenFile(o.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		to = file
	}
	dir, err := os.MkdirTemp("", "taskledger-incident-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // the user that runs PostgreSQL enters it
		return err
	}
	data := filepath.Join(dir, "data")
	stopServe, err := serve(o, dir, data)
	if err != nil {
		return err
	}
	defer stopServe()
	address, err := await(ctx, data)
	if err != nil {
		return err
	}
	s, err := newShop(ctx, address, to)
	if err != nil {
		return err
	}
	defer s.close()
	return s.play(ctx, i, o, func() (string, error) { return link(ctx, o, data) })
}

// serve starts taskledger serve with its servers in data. Stop ends it and waits for its end.
func serve(o options, dir, data string) (stop func(), err error) {
	output, err := os.Create(filepath.Join(dir, "serve.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }()
	cmd := exec.Command(o.binary, "serve", "--data-dir", data, "--listen", o.listen)
	cmd.Env = withoutAddresses(os.Environ())
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start serve: %w", err)
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
	}, nil
}

// withoutAddresses returns an environment in which serve starts its own servers.
func withoutAddresses(environ []string) (all []string) {
	for _, v := range environ {
		if !strings.HasPrefix(v, "DATABASE_URL=") && !strings.HasPrefix(v, "NATS_URL=") {
			all = append(all, v)
		}
	}
	return all
}

// await returns the addresses of serve when it has announced them.
func await(ctx context.Context, data string) (embedded.Announcement, error) {
	for deadline := time.Now().Add(3 * time.Minute); ; {
		a, err := embedded.Attach(data)
		if err == nil && a.DatabaseURL != "" && a.HTTPURL != "" {
			return a, nil
		}
		if time.Now().After(deadline) {
			return a, errors.Join(errors.New("serve has not started"), err)
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return a, err
		}
	}
}

// link returns a link to the console for the person.
func link(ctx context.Context, o options, data string) (string, error) {
	cmd := exec.CommandContext(ctx, o.binary, "open", "--data-dir", data, "--role", "admin", "--name", person)
	cmd.Env = withoutAddresses(os.Environ())
	text, err := cmd.Output()
	return strings.TrimSpace(string(text)), err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
