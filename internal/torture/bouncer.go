package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/migrations"
)

// bouncer is a PgBouncer in transaction mode.
type bouncer struct {
	address  string
	command  []string
	log      *os.File
	closing  chan struct{}
	restarts atomic.Int64 // after an end by itself

	mu      sync.Mutex
	process *os.Process
	ended   chan struct{} // closed when the process has ended; only supervise changes it
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
	b := &bouncer{address: fmt.Sprintf("127.0.0.1:%d", port), closing: make(chan struct{})}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	if b.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, "", err
	}
	var users strings.Builder
	for _, role := range []string{"app", "producer", "relay", "operator"} {
		fmt.Fprintf(&users, "%q %q\n", migrations.RoleName(rolePrefix, role), password)
	}
	host, serverPort, _ := strings.Cut(server, ":")
	text := fmt.Sprintf("[databases]\n%s = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = plain\nauth_file = %s\npool_mode = transaction\nmax_client_conn = 500\n"+
		"default_pool_size = 30\nserver_login_retry = 1\n"+
		"ignore_startup_parameters = extra_float_digits\n",
		database, host, serverPort, port, filepath.Join(dir, "users"))
	config := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(filepath.Join(dir, "users"), []byte(users.String()), 0o644); err != nil {
		return nil, "", err
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, "", err
	}
	args := []string{config}
	if os.Geteuid() == 0 { // as which it refuses to run
		args = append([]string{"-u", "postgres"}, args...)
	}
	b.command = append([]string{path}, args...)
	if err := b.start(); err != nil {
		return nil, "", err
	}
	select {
	case <-b.ended:
		return nil, path + " ended by itself", nil
	case <-time.After(300 * time.Millisecond):
		go b.supervise()
		return b, "", nil
	}
}

// start starts the process.
func (b *bouncer) start() error {
	cmd := exec.Command(b.command[0], b.command[1:]...)
	cmd.Stderr = b.log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	b.mu.Lock()
	b.process, b.ended = cmd.Process, ended
	b.mu.Unlock()
	go func() {
		_ = cmd.Wait() // it ends by a fault of its own, or by close
		close(ended)
	}()
	return nil
}

// supervise starts the process again when it ends, as systemd does.
func (b *bouncer) supervise() {
	for {
		<-b.ended
		select {
		case <-b.closing:
			return
		case <-time.After(time.Second):
		}
		b.restarts.Add(1)
		if b.start() != nil {
			return
		}
	}
}

// close ends the process.
func (b *bouncer) close() error {
	close(b.closing)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-b.ended
	return b.log.Close()
}
