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

// recorder writes down what a connection sends, by round trips.
type recorder struct{ trips [][]recorded }

// recorded is a statement.
type recorded struct {
	sql  string
	args []any
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.trips = append(r.trips, []recorded{{data.SQL, data.Args}})
	return ctx
}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var trip []recorded
	for _, q := range data.Batch.QueuedQueries {
		trip = append(trip, recorded{q.SQL, q.Arguments})
	}
	r.trips = append(r.trips, trip)
	return ctx
}

func (*recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*recorder) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// enqueuePgbench is the floor: the statements of our own transaction, recorded and given to
// pgbench, which is written in C and does nothing else.
func enqueuePgbench(ctx context.Context, t *trial, connections int) error {
	if err := migrate(ctx, t); err != nil {
		return err
	}
	script, err := recordScript(ctx, t)
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
	if err := settle(ctx, t); err != nil {
		return err
	}
	// Its clock starts before it has connected: a time is no bound for what it does in it.
	p := pgbench{program, file, script.defines, connections}
	tps, err := p.run(ctx, t.url, 0, 20)
	if err != nil {
		return err
	}
	var before meter
	if err := before.read(ctx, t); err != nil {
		return err
	}
	each := max(1, int(tps*t.lasts().Seconds())/connections)
	if tps, err = p.run(ctx, t.url, 20, each); err != nil {
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

// run has each connection do so many transactions, after those that it did before. It returns how many
// a second all of them did, once they were connected.
func (p pgbench) run(ctx context.Context, url string, before, transactions int) (float64, error) {
	options := append(slices.Clone(p.defines), "--define=n="+strconv.Itoa(before), "--no-vacuum", "--protocol=prepared", "--file="+p.file,
		"--client="+strconv.Itoa(p.connections), "--jobs="+strconv.Itoa(min(2, p.connections)), "--transactions="+strconv.Itoa(transactions), url)
	out, err := exec.CommandContext(ctx, p.program, options...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	return found(`tps = ([0-9.]+)`, string(out))
}

func found(pattern, text string) (float64, error) {
	match := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("pgbench did not print %q: %s", pattern, text)
	}
	return strconv.ParseFloat(match[1], 64)
}

// script is a transaction for pgbench.
type script struct {
	text    strings.Builder
	defines []string // what the parameters were, as options
}

// recordScript runs one transaction of ours and writes down what it sent, with another id each
// time.
func recordScript(ctx context.Context, t *trial) (*script, error) {
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
	if err := ofOurs(kind)(ctx, conn, id); err != nil {
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

// write adds a statement. Its parameters become variables, which pgbench sends as parameters.
func (s *script) write(r recorded, id string) error {
	var fault error
	sql := placeholder.ReplaceAllStringFunc(comment.ReplaceAllString(r.sql, ""), func(p string) string {
		i, _ := strconv.Atoi(p[1:])
		if i > len(r.args) {
			fault = fmt.Errorf("no value for %s", p)
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
		fault = fmt.Errorf("%T as %s: no way to give it to pgbench", value, p)
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

// pgbenchProgram finds pgbench beside the server's binaries.
func pgbenchProgram(dir string) (string, error) {
	if dir != "" {
		return filepath.Join(dir, "pgbench"), nil
	}
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if len(found) == 0 {
		return "", errors.New("no pgbench found: name its directory with -pg-bin, or leave the measures enqueue out")
	}
	return found[len(found)-1], nil
}
