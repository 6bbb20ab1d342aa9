package pgserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/reserve"
)

// within returns a context for operations that end soon or never.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start starts a server and closes it at the end of the test.
func start(t *testing.T, config pgserver.Config) *pgserver.Server {
	t.Helper()
	config.NoSync = true
	s, err := pgserver.Start(within(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// connect opens a connection and closes it at the end of the test.
func connect(t *testing.T, s *pgserver.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(within(t), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, s *pgserver.Server, sql string) {
	t.Helper()
	conn := connect(t, s)
	defer conn.Close(within(t))
	if _, err := conn.Exec(within(t), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query(t *testing.T, s *pgserver.Server, sql string) (value string) {
	t.Helper()
	conn := connect(t, s)
	defer conn.Close(within(t))
	if err := conn.QueryRow(within(t), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// Statements on table note, whose rows are the writes that a server has.
const (
	makeNotes = `create table note (n int primary key generated always as identity, word text)`
	addNote   = `insert into note (word) values ('%s')`
	readNotes = `select coalesce(string_agg(word, ' ' order by n), '') from note`
)

func TestDataOutlivesStopKillAndRestart(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Config{})
	address := s.URL("postgres")
	exec(t, s, makeNotes)
	for _, step := range []struct {
		word string
		end  func() error
	}{
		{"stopped", func() error { return s.Stop(within(t)) }},
		{"killed", s.Kill},
		{"restarted", func() error { return nil }},
	} {
		exec(t, s, fmt.Sprintf(addNote, step.word))
		open := connect(t, s) // delays neither the end nor the start
		if _, err := open.Exec(within(t), "begin; insert into note (word) values ('uncommitted')"); err != nil {
			t.Fatal(err)
		}
		if err := step.end(); err != nil {
			t.Fatalf("%s: %v", step.word, err)
		}
		if err := s.Restart(within(t)); err != nil {
			t.Fatalf("restart after %s: %v", step.word, err)
		}
	}
	if got, want := query(t, s, readNotes), "stopped killed restarted"; got != want {
		t.Errorf("notes are %q, want %q", got, want)
	}
	if s.URL("postgres") != address {
		t.Errorf("the address changed from %s to %s", address, s.URL("postgres"))
	}
}

func TestStoppedServerIsGone(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Config{})
	done := s.Done()
	for range 2 {
		if err := s.Stop(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	if conn, err := pgx.Connect(within(t), s.URL("postgres")); err == nil {
		conn.Close(t.Context())
		t.Error("a stopped server accepts connections")
	}
}

func TestCloseRemovesTheTemporaryDirectory(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Config{})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want ErrNotExist", s.Dir(), err)
	}
	if err := s.Restart(within(t)); err == nil {
		t.Error("a closed server started again")
	}
}

func TestDirectoryIsKeptAndHasOneServer(t *testing.T) {
	t.Parallel()
	config := pgserver.Config{Dir: filepath.Join(publicDir(t), "made", "for", "it"), NoSync: true}
	first := start(t, config)
	exec(t, first, makeNotes)
	exec(t, first, fmt.Sprintf(addNote, "kept"))

	_, err := pgserver.Start(within(t), config)
	if !errors.Is(err, reserve.ErrHeld) || !strings.Contains(err.Error(), config.Dir) {
		t.Errorf("second server: %v, want ErrHeld and the directory", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got := query(t, start(t, config), readNotes); got != "kept" {
		t.Errorf("notes are %q", got)
	}
}

func TestPasswordIsRequired(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Config{})
	address, err := url.Parse(s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword("postgres", "guessed")
	_, err = pgx.Connect(within(t), address.String())
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("with a wrong password: %v, want SQLSTATE 28P01", err)
	}
	got := query(t, s, "select current_setting('listen_addresses') || current_setting('unix_socket_directories')")
	if got != "127.0.0.1" {
		t.Errorf("listens on %q, want 127.0.0.1 only", got)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Config{Settings: map[string]string{
		"max_prepared_transactions": "10", "timezone": "Asia/Tokyo",
	}})
	got := query(t, s, `select concat_ws(' ', current_setting('max_connections'),
		current_setting('max_prepared_transactions'), current_setting('timezone'),
		current_setting('server_encoding'), (select datcollate from pg_database where datname = current_database()))`)
	if want := "200 10 Asia/Tokyo UTF8 C"; got != want {
		t.Errorf("settings are %q, want %q", got, want)
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"max_connections": "plenty"}
	_, err := pgserver.Start(within(t), pgserver.Config{NoSync: true, Settings: settings})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "max_connections": "plenty"`) {
		t.Errorf("got %v, want the server's own message", err)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("cancelled by the test")
	cancel(reason)
	if _, err := pgserver.Start(ctx, pgserver.Config{NoSync: true}); !errors.Is(err, reason) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
}

// A pid file from a crash may have the pid of a live process. PostgreSQL itself would not start then.
func TestPidFileOfACrashIsStale(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Config{})
	exec(t, s, makeNotes)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	other := s.Beside("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		other.Process.Kill()
		_ = other.Wait()
	}()
	file := filepath.Join(s.Dir(), "data", "postmaster.pid")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	if err := os.WriteFile(file, fmt.Appendf(nil, "%d\n%s", other.Process.Pid, rest), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(within(t)); err != nil {
		t.Fatal(err)
	}
	query(t, s, readNotes)
}

func TestDirectoryThatTheServerCannotEnter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts the server as another user")
	}
	dir := publicDir(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := pgserver.Start(within(t), pgserver.Config{Dir: filepath.Join(dir, "postgres"), NoSync: true})
	if err == nil || !strings.Contains(err.Error(), "as user postgres, which must be able to enter "+dir) {
		t.Errorf("got %v, want the user and the directory", err)
	}
}

// publicDir returns a temporary directory that other users can enter, for tests that run as root.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgserver-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Servers that are prepared once have the data and the password of the prepared one, settings of their own, and do not
// share data. After a week without use the data are removed.
func TestPreparedOnce(t *testing.T) {
	cache := publicDir(t)
	t.Setenv("HOME", cache)
	t.Setenv("XDG_CACHE_HOME", cache)
	kept := filepath.Join(cache, "taskledger", "prepared")
	prepared := 0
	prepare := func(_ context.Context, s *pgserver.Server) error {
		prepared++
		exec(t, s, makeNotes)
		exec(t, s, fmt.Sprintf(addNote, "original"))
		return nil
	}
	startNamed := func(name string) *pgserver.Server {
		t.Helper()
		config := pgserver.Config{NoSync: true, Settings: map[string]string{"max_connections": "20"}}
		server, err := pgserver.StartPrepared(within(t), config, name, prepare)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		return server
	}
	for _, note := range []string{"first", "second"} {
		server := startNamed("old")
		exec(t, server, fmt.Sprintf(addNote, note))
		if got, want := query(t, server, readNotes), "original "+note; got != want {
			t.Errorf("notes %q, want %q", got, want)
		}
		if got := query(t, server, "show max_connections"); got != "20" {
			t.Errorf("max_connections is %s", got)
		}
	}
	if prepared != 1 {
		t.Errorf("prepared %d times", prepared)
	}
	old, err := filepath.Glob(filepath.Join(kept, "old-*"))
	if err != nil || len(old) != 1 {
		t.Fatalf("kept: %v, %v", old, err)
	}
	lastWeek := time.Now().Add(-8 * 24 * time.Hour)
	if err := os.Chtimes(old[0], lastWeek, lastWeek); err != nil {
		t.Fatal(err)
	}
	startNamed("new")
	if all, err := os.ReadDir(kept); err != nil || len(all) != 1 || !strings.HasPrefix(all[0].Name(), "new-") {
		t.Errorf("kept: %v, %v", all, err)
	}
}

// A server whose data cannot be kept, because there is no cache directory or it cannot be made, is prepared each time.
// A failure to prepare is reported.
func TestPreparedWithoutACache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, home := range map[string]string{"None": "", "UnderAFile": filepath.Join(file, "home")} {
		t.Run(name, func(t *testing.T) { testPreparedIn(t, home) })
	}
}

func testPreparedIn(t *testing.T, home string) {
	t.Helper()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", "")
	server, err := pgserver.StartPrepared(within(t), pgserver.Config{NoSync: true}, "notes",
		func(_ context.Context, s *pgserver.Server) error {
			exec(t, s, makeNotes)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if got := query(t, server, readNotes); got != "" {
		t.Errorf("notes %q", got)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	refused := errors.New("refused")
	_, err = pgserver.StartPrepared(within(t), pgserver.Config{NoSync: true}, "notes",
		func(context.Context, *pgserver.Server) error { return refused })
	if !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
}

// Data that were not used for a week are removed as a whole: an interrupted removal leaves no part under their name,
// which later calls would copy.
func TestPreparedDataAreRemovedAsAWhole(t *testing.T) {
	const files = 20_000
	dir := t.TempDir()
	old := filepath.Join(dir, "old-17")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(old, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	removed := make(chan error, 1)
	go func() { removed <- pgserver.RemovePrepared(dir, time.Now().Add(time.Hour)) }()
	for {
		entries, err := os.ReadDir(old)
		if _, gone := os.Stat(old); errors.Is(gone, os.ErrNotExist) {
			break
		}
		if err != nil || len(entries) < files {
			t.Errorf("%d of %d files are there, %v", len(entries), files, err)
			break
		}
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
