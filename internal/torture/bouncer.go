package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/migrations"
)

// bouncer is a PgBouncer in transaction mode.
type bouncer struct {
	address string
	cmd     *exec.Cmd
	ended   chan error
}

// startBouncer starts the binary before a server. It returns nil, and the reason, if there is no binary.
func startBouncer(binary, dir, server string) (*bouncer, string, error) {
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, err.Error(), nil
	}
	port, err := reserve.Port()
	if err != nil {
		return nil, "", err
	}
	b := &bouncer{address: fmt.Sprintf("127.0.0.1:%d", port), ended: make(chan error, 1)}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	var users strings.Builder
	for _, role := range []string{"app", "producer", "relay", "operator"} {
		fmt.Fprintf(&users, "%q %q\n", migrations.RoleName(rolePrefix, role), password)
	}
	host, serverPort, _ := strings.Cut(server, ":")
	text := fmt.Sprintf("[databases]\n%s = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = plain\nauth_file = %s\npool_mode = transaction\nmax_client_conn = 500\n"+
		"default_pool_size = 30\nserver_login_retry = 1\nlogfile = %s\n",
		database, host, serverPort, port, filepath.Join(dir, "users"), os.DevNull)
	config := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(filepath.Join(dir, "users"), []byte(users.String()), 0o644); err != nil {
		return nil, "", err
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, "", err
	}
	args := []string{"-q", config}
	if os.Geteuid() == 0 { // as which it refuses to run
		args = append([]string{"-u", "postgres"}, args...)
	}
	b.cmd = exec.Command(path, args...)
	if err := b.cmd.Start(); err != nil {
		return nil, "", err
	}
	go func() { b.ended <- b.cmd.Wait() }()
	select {
	case err := <-b.ended:
		return nil, fmt.Sprintf("%s ended: %v", path, err), nil
	case <-time.After(300 * time.Millisecond):
		return b, "", nil
	}
}

func (b *bouncer) close() error {
	if err := b.cmd.Process.Kill(); err != nil {
		return err
	}
	return ignoreSignal(<-b.ended)
}

// ignoreSignal returns the error of a process, unless a signal has ended it.
func ignoreSignal(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		return nil
	}
	return err
}
