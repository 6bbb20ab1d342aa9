package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// recorder is a tracer that records the statements of a connection, by round trip.
type recorder struct{ trips [][]statementCall }

// statementCall is a statement with its arguments.
type statementCall struct {
	sql  string
	args []any
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.trips = append(r.trips, []statementCall{{data.SQL, data.Args}})
	return ctx
}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var trip []statementCall
	for _, q := range data.Batch.QueuedQueries {
		trip = append(trip, statementCall{q.SQL, q.Arguments})
	}
	r.trips = append(r.trips, trip)
	return ctx
}

func (*recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*recorder) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// enqueuePgbench measures the floor: it records the statements of a transaction with the insert of commit 3f4d70b, and
// lets pgbench, which is written in C, execute them in the same round trips.
func enqueuePgbench(run transaction) func(ctx context.Context, t *trial, connections int) error {
	return func(ctx context.Context, t *trial, connections int) error {
		return measurePgbench(ctx, t, connections, run)
	}
}

func measurePgbench(ctx context.Context, t *trial, connections int, run transaction) error {
	if err := migrateFloor(ctx, t); err != nil {
		return err
	}
	script, err := recordScript(ctx, t, run)
	if err != nil {
		return err
	}
	file := filepath.Join(t.server.dir, "enqueue.pgbench")
	if err := os.WriteFile(file, []byte(script.text.String()), 0o600); err != nil {
		return err
	}
	program, err := pgbenchProgram(t.config.binaries)
	if err != nil {
		return err
	}
	if err := checkpointAndAnalyze(ctx, t); err != nil {
		return err
	}
	// pgbench's clock starts before its connections. So its bound is a number of transactions, not a time.
	// A short warm-up has mostly the time of the connections, and makes the bound too small.
	p := pgbench{program, file, script.defines, connections}
	const warmUp = 200
	tps, err := p.run(ctx, t.url, 0, warmUp)
	if err != nil {
		return err
	}
	var before meter
	if err := before.read(ctx, t); err != nil {
		return err
	}
	each := max(1, int(tps*t.duration().Seconds())/connections)
	if tps, err = p.run(ctx, t.url, warmUp, each); err != nil {
		return err
	}
	t.add(rate, tps, "tx/s")
	return before.add(ctx, t, each*connections)
}

type pgbench struct {
	program, file string
	defines       []string
	connections   int
}

// run runs the given number of transactions on each connection. before is the number of earlier ones, whose ids are
// used. It returns the transactions per second of all connections together.
func (p pgbench) run(ctx context.Context, url string, before, transactions int) (float64, error) {
	options := append(slices.Clone(p.defines), "--define=n="+strconv.Itoa(before), "--no-vacuum", "--protocol=prepared",
		"--file="+p.file, "--client="+strconv.Itoa(p.connections), "--jobs="+strconv.Itoa(min(2, p.connections)),
		"--transactions="+strconv.Itoa(transactions), url)
	out, err := exec.CommandContext(ctx, p.program, options...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	return submatch(`tps = ([0-9.]+)`, string(out))
}

// submatch returns the number in the first group of the pattern.
func submatch(pattern, text string) (float64, error) {
	match := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("pgbench: no %q in its output: %s", pattern, text)
	}
	return strconv.ParseFloat(match[1], 64)
}

// script is a pgbench script with one transaction.
type script struct {
	text    strings.Builder
	defines []string // the arguments, as options
}

// frozenTransaction is the transaction of commit 3f4d70b, in two round trips.
func frozenTransaction(ctx context.Context, conn *pgx.Conn, id string) error {
	b := &pgx.Batch{}
	b.Queue("begin")
	b.Queue(statement("effect"), id)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	b = &pgx.Batch{}
	b.Queue(statement("floor_enqueue"), floorTask(id)...)
	b.Queue("commit")
	return conn.SendBatch(ctx, b).Close()
}

// recordScript runs one transaction and returns it as a script, which uses a new id each time.
func recordScript(ctx context.Context, t *trial, run transaction) (*script, error) {
	c, err := pgx.ParseConfig(t.url)
	if err != nil {
		return nil, err
	}
	var r recorder
	c.Tracer = &r
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	const id = "recorded"
	if err := run(ctx, conn, id); err != nil {
		return nil, err
	}
	s := &script{}
	s.text.WriteString("\\set n :n + 1\n\\set id :client_id * 1000000000 + :n\n")
	for _, trip := range r.trips {
		s.text.WriteString("\\startpipeline\n")
		for _, statement := range trip {
			if err := s.write(statement, id); err != nil {
				return nil, err
			}
		}
		s.text.WriteString("\\endpipeline\n")
	}
	return s, nil
}

var (
	placeholder = regexp.MustCompile(`\$[0-9]+`)
	comment     = regexp.MustCompile(`--[^\n]*`)
)

// write adds a statement. Its arguments become variables, which pgbench sends as parameters.
func (s *script) write(r statementCall, id string) error {
	var fault error
	sql := placeholder.ReplaceAllStringFunc(comment.ReplaceAllString(r.sql, ""), func(p string) string {
		i, _ := strconv.Atoi(p[1:])
		if i > len(r.args) {
			fault = fmt.Errorf("no argument for %s", p)
			return p
		}
		value := r.args[i-1]
		if text, ok := value.(*string); ok && text != nil {
			value = *text
		}
		switch value := value.(type) {
		case nil, *string:
			return "null"
		case string:
			if value == id {
				return ":id"
			}
			return s.define(value)
		case int, int16, int32, int64:
			return s.define(fmt.Sprint(value))
		}
		fault = fmt.Errorf("pgbench cannot send %s: unsupported type %T", p, value)
		return p
	})
	s.text.WriteString(strings.TrimSpace(sql) + ";\n")
	return fault
}

func (s *script) define(value string) string {
	name := fmt.Sprintf("p%d", len(s.defines))
	s.defines = append(s.defines, "--define="+name+"="+value)
	return ":" + name
}

// pgbenchProgram returns the path of pgbench.
func pgbenchProgram(dir string) (string, error) {
	if dir != "" {
		return filepath.Join(dir, "pgbench"), nil
	}
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path, nil
	}
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if len(paths) == 0 {
		return "", errors.New("pgbench not found: set -pg-bin to its directory, or run other measures than enqueue")
	}
	return paths[len(paths)-1], nil
}
