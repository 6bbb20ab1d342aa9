// Package script runs the scripts of cmd/taskledger/testdata/script. It is apart from the program because of the module
// that it needs.
package script_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The environment of the program.
const (
	envDatabaseURL = "DATABASE_URL"
	envNATSURL     = "NATS_URL"
	envDataDir     = "TASKLEDGER_DATA"
	envLogins      = "TASKLEDGER_TEST_LOGINS" // of the tests of cmd/taskledger
)

// program is the directory of the program's package.
const program = "../../../cmd/taskledger"

// TestMain builds the program, as it is for its own tests: each command has the login of its role.
func TestMain(m *testing.M) {
	os.Exit(withProgram(func() int { return longtest.Run(m) }))
}

// withProgram calls run with the program in the path.
func withProgram(run func() int) int {
	dir, err := os.MkdirTemp("", "taskledger-program-")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "test", "-c", "-o", filepath.Join(dir, "taskledger"), ".")
	build.Dir = program
	if out, err := build.CombinedOutput(); err != nil {
		log.Panicf("%v\n%s", err, out)
	}
	if err := os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		log.Panic(err)
	}
	return run()
}

// patience bounds what normally takes milliseconds.
const patience = 2 * time.Minute

// TestScripts runs the program as users do: each script executes every command line in a process of its own,
// on real servers.
func TestScripts(t *testing.T) {
	t.Parallel()
	// A server that root starts runs as another user, which must be able to enter the directory.
	root, err := os.MkdirTemp("", "taskledger-script-")
	if err == nil {
		err = os.Chmod(root, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	users := logins(t)
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	testscript.Run(t, testscript.Params{
		Dir:                 program + "/testdata/script",
		WorkdirRoot:         root,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values["t"] = env.T()
			env.Setenv("TASKLEDGER_DATA", env.WorkDir+"/data")
			env.Setenv(envLogins, users)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"database":  cmdDatabase,
			"nats":      cmdNATS,
			"announce":  cmdAnnounce,
			"stream":    cmdStream,
			"sql":       cmdSQL,
			"sqlfile":   cmdSQLFile,
			"project":   cmdProject,
			"exits":     cmdExits,
			"until":     cmdUntil,
			"isjson":    cmdIsJSON,
			"repeat":    cmdRepeat,
			"setvar":    cmdSetVar,
			"setmember": cmdSetMember,
			"mode":      cmdMode,
			"address":   cmdAddress,
			"port":      cmdPort,
			"get":       cmdGet,

			"oddvalues": cmdOddValues,
			"readall":   cmdReadAll,
			"receiver":  cmdReceiver,

			"terminate":     cmdTerminate,
			"wrongpassword": cmdWrongPassword,
		},
	})
}

// logins returns the login of each role and of a command that has several, as user:password in the form of a query.
func logins(t testing.TB) string {
	t.Helper()
	address, users := ledgertest.URL(t), url.Values{}
	for name, roles := range map[string][]string{
		"--wait": {"producer", "reader"}, "producer, subscriber, worker": {"producer", "subscriber", "worker"},
		"archiver": nil, "operator": nil, "producer": nil, "reader": nil, "relay": nil, "subscriber": nil,
		"worker": nil, ledgertest.Owner: nil,
	} {
		if roles == nil {
			roles = []string{name}
		}
		u, err := url.Parse(ledgertest.URLAs(t, address, roles...))
		if err != nil {
			t.Fatal(err)
		}
		users.Set(name, u.User.String())
	}
	return users.Encode()
}

// cmdDatabase sets DATABASE_URL to a new database: migrated, or `database empty`. It is the address of the owner, for
// the statements of the script. The program has that of the role of its command instead, by roleOf of cmd/taskledger.
func cmdDatabase(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv("DATABASE_URL", ledgertest.URL(ts.Value("t").(testing.TB), ledgertest.Owner))
	if len(args) > 0 && args[0] == "empty" {
		cmdSQL(ts, false, []string{"drop schema taskledger, taskledger_internal cascade"})
	}
}

// cmdNATS sets NATS_URL to a new server.
func cmdNATS(ts *testscript.TestScript, _ bool, _ []string) {
	server, err := natsserver.Start(natsserver.Config{Dir: ts.MkAbs("nats")})
	ts.Check(err)
	ts.Defer(func() { ts.Check(server.Close()) })
	ts.Setenv("NATS_URL", server.URL())
}

// cmdAnnounce DIR announces DATABASE_URL and NATS_URL as those of servers of this process.
func cmdAnnounce(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	natsURL := ts.Getenv("NATS_URL")
	_, err := embedded.Announce(dir, embedded.Announcement{DatabaseURL: ts.Getenv("DATABASE_URL"),
		NATSURLs: map[string]string{natsconfig.Worker: natsURL, natsconfig.Operator: natsURL}})
	ts.Check(err)
}

// cmdStream publish SUBJECT TEXT publishes a message, cmdStream subscribe NAME [STREAM] makes a durable consumer,
// cmdStream make NAME SUBJECTS… makes a stream, cmdStream drain STREAM CONSUMER [FILE] acknowledges one message and
// writes it into a file, and cmdStream delete [NAME] deletes the stream of the ledger or another one.
func cmdStream(ts *testscript.TestScript, _ bool, args []string) {
	nc, err := nats.Connect(ts.Getenv("NATS_URL"))
	ts.Check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	ts.Check(err)
	switch args[0] {
	case "publish":
		_, err = js.Publish(context.Background(), args[1], []byte(args[2]))
	case "subscribe":
		of := append(args[2:], "LEDGER")[0]
		_, err = js.CreateConsumer(context.Background(), of, jetstream.ConsumerConfig{Durable: args[1]})
	case "make":
		_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{Name: args[1], Subjects: args[2:]})
	case "drain":
		consumer, consumerErr := js.Consumer(context.Background(), args[1], args[2])
		for begun := time.Now(); consumerErr != nil && time.Since(begun) < patience; {
			time.Sleep(20 * time.Millisecond)
			consumer, consumerErr = js.Consumer(context.Background(), args[1], args[2])
		}
		ts.Check(consumerErr)
		m, nextErr := consumer.Next(jetstream.FetchMaxWait(patience))
		// The server names a new consumer a moment before it listens to the requests for its messages.
		for begun := time.Now(); errors.Is(nextErr, nats.ErrNoResponders) && time.Since(begun) < patience; {
			time.Sleep(20 * time.Millisecond)
			m, nextErr = consumer.Next(jetstream.FetchMaxWait(patience))
		}
		ts.Check(nextErr)
		if len(args) > 3 {
			ts.Check(os.WriteFile(ts.MkAbs(args[3]), m.Data(), 0o600))
		}
		err = m.DoubleAck(context.Background())
	case "delete":
		err = js.DeleteStream(context.Background(), append(args[1:], "LEDGER")[0])
	}
	ts.Check(err)
}

// cmdSQL STATEMENT executes SQL.
func cmdSQL(ts *testscript.TestScript, _ bool, args []string) {
	conn, err := pgx.Connect(context.Background(), ts.Getenv("DATABASE_URL"))
	ts.Check(err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), args[0])
	ts.Check(err)
}

// cmdSQLFile FILE executes a script.
func cmdSQLFile(ts *testscript.TestScript, _ bool, args []string) {
	conn, err := pgx.Connect(context.Background(), ts.Getenv("DATABASE_URL"))
	ts.Check(err)
	defer conn.Close(context.Background())
	ts.Check(conn.PgConn().Exec(context.Background(), ts.ReadFile(args[0])).Close())
}

// cmdAddress NAME VALUE changes the user or the database in DATABASE_URL, or the token in NATS_URL. With
// cmdAddress parameter NAME=VALUE it sets a parameter in DATABASE_URL.
func cmdAddress(ts *testscript.TestScript, _ bool, args []string) {
	variable := envDatabaseURL
	if args[0] == "token" {
		variable = envNATSURL
	}
	address, err := url.Parse(ts.Getenv(variable))
	ts.Check(err)
	switch args[0] {
	case "user":
		address.User = url.UserPassword(args[1], args[1])
	case "database":
		address.Path = "/" + args[1]
	case "token":
		address.User = url.User(args[1])
	case "parameter":
		query := address.Query()
		name, value, _ := strings.Cut(args[1], "=")
		query.Set(name, value)
		address.RawQuery = query.Encode()
	}
	ts.Setenv(variable, address.String())
}

// cmdProject lets a projector catch up.
func cmdProject(ts *testscript.TestScript, _ bool, _ []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pool, err := pgxpool.New(ctx, ts.Getenv("DATABASE_URL"))
	ts.Check(err)
	defer pool.Close()
	(&servicetest.Bundle{T: ts.Value("t").(testing.TB), DB: pool, AllAsOwner: true}).Project()
}

// cmdExits CODE PROGRAM ARGS… runs a program that must end with this exit code.
func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	have := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		have = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if have != want {
		ts.Fatalf("exit code %d, want %d", have, want)
	}
}

// cmdUntil PATTERN PROGRAM ARGS… runs a program until its output matches. That output becomes stdout.
func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[0])
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		cmd := exec.Command(args[1], args[2:]...) // ts.Exec would log every attempt
		cmd.Dir = ts.MkAbs(".")
		cmd.Env = os.Environ()
		for _, name := range []string{envDatabaseURL, envNATSURL, envDataDir, envLogins} {
			cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
		}
		out, err := cmd.CombinedOutput()
		if err == nil && pattern.Match(out) {
			// The output that matched becomes the command's output, since another run might print another
			// state.
			matched := ts.MkAbs(".until")
			ts.Check(os.WriteFile(matched, out, 0o600))
			ts.Check(ts.Exec("cat", matched))
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no match for %s after %s: %v\n%s", args[0], patience, err, out)
		}
	}
}

// cmdIsJSON FILE [lines] checks that a file, stdout or stderr is one JSON value, or one a line.
func cmdIsJSON(ts *testscript.TestScript, _ bool, args []string) {
	values := []string{ts.ReadFile(args[0])}
	if len(args) > 1 {
		values = strings.Split(strings.TrimSuffix(values[0], "\n"), "\n")
	}
	for _, v := range values {
		if !json.Valid([]byte(v)) {
			ts.Fatalf("not JSON: %q", v)
		}
	}
}

// cmdRepeat FILE N TEXT… writes each text n times, one after the other.
func cmdRepeat(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	var b bytes.Buffer
	for _, text := range args[2:] {
		b.WriteString(strings.Repeat(text, n))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o600))
}

// cmdSetVar VARIABLE TEXT sets a variable to text with Go's escapes.
func cmdSetVar(ts *testscript.TestScript, _ bool, args []string) {
	text, err := strconv.Unquote(`"` + args[1] + `"`)
	ts.Check(err)
	ts.Setenv(args[0], text)
}

// cmdSetMember VARIABLE MEMBER FILE sets a variable to a member of an object of JSON.
func cmdSetMember(ts *testscript.TestScript, _ bool, args []string) {
	var object map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[2])), &object))
	value, ok := object[args[1]].(string)
	if !ok {
		ts.Fatalf("%s has no text %s", args[2], args[1])
	}
	ts.Setenv(args[0], value)
}

// cmdMode FILE MODE checks the permissions of a file.
func cmdMode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if have := strconv.FormatInt(int64(info.Mode().Perm()), 8); have != args[1] {
		ts.Fatalf("mode %s, want %s", have, args[1])
	}
}

// cmdWrongPassword changes the password in DATABASE_URL.
func cmdWrongPassword(ts *testscript.TestScript, _ bool, _ []string) {
	address, err := url.Parse(ts.Getenv("DATABASE_URL"))
	ts.Check(err)
	address.User = url.UserPassword(address.User.Username(), "s3cr3t-word")
	ts.Setenv("DATABASE_URL", address.String())
}

// cmdPort VARIABLE [taken] sets a variable to an address whose port is free, or taken by this process.
func cmdPort(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	if len(args) == 1 {
		ts.Check(l.Close())
		return
	}
	ts.Defer(func() { ts.Check(l.Close()) })
}

// cmdGet URL STATUS PATTERN requests a URL until the answer has this status and its body matches. ! get requests it
// once, and the body must not match.
func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[2])
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var status, body string
		answer, err := http.Get(args[0])
		if err == nil {
			var text []byte
			text, err = io.ReadAll(answer.Body)
			ts.Check(answer.Body.Close())
			status, body = strconv.Itoa(answer.StatusCode), string(text)
		}
		isMatch := pattern.MatchString(body)
		switch {
		case neg && (err != nil || isMatch):
			ts.Fatalf("%v\n%s", err, body)
		case neg, err == nil && status == args[1] && isMatch:
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no answer %s with %s after %s: %s %v\n%s", args[1], args[2], patience, status, err, body)
		}
	}
}

// cmdTerminate sends SIGTERM to the background processes.
func cmdTerminate(ts *testscript.TestScript, _ bool, _ []string) {
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(syscall.SIGTERM))
	}
}
