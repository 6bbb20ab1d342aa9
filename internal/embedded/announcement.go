package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/reserve"
)

// announcementFile is the name of the file with the announcement, in the data directory.
const announcementFile = "server.json"

// ErrNotRunning is returned by [Attach] if no servers run in a data directory.
var ErrNotRunning = errors.New("no server is running there")

// Announcement contains the addresses of running servers, for other commands. The addresses include passwords, so only
// the file's owner can read it. Without NATS addresses, commands find the NATS server through the database.
type Announcement struct {
	PID         int               `json:"pid"` // process of the servers
	DatabaseURL string            `json:"database_url"`
	NATSURL     string            `json:"nats_url,omitempty"`  // for workers
	NATSURLs    map[string]string `json:"nats_urls,omitempty"` // by user of package natsconfig
	HTTPURL     string            `json:"http_url,omitempty"`  // of the HTTP server, if there is one
	StartedAt   time.Time         `json:"started_at"`
}

// Announce writes the addresses of this process's servers into dir: the addresses and NATSURLs of a. It makes dir if it
// does not exist. Withdraw removes the announcement, unless another process has replaced it.
func Announce(dir string, a Announcement) (withdraw func() error, err error) {
	a.PID, a.NATSURL, a.StartedAt = os.Getpid(), a.NATSURLs[natsconfig.Worker], time.Now().UTC()
	if err := writeAtomically(dir, announcementFile, a); err != nil {
		return nil, err
	}
	return func() error {
		current, err := read(dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && current.PID != a.PID {
			return nil
		}
		return os.Remove(filepath.Join(dir, announcementFile))
	}, nil
}

// writeAtomically writes a value as JSON into a file with mode 0600. Readers see the old file or the new
// one. It makes the directory if it does not exist.
func writeAtomically(dir, file string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	unfinished, err := os.CreateTemp(dir, file+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = unfinished.Write(append(text, '\n'))
	if err = errors.Join(err, unfinished.Close()); err == nil {
		err = os.Rename(unfinished.Name(), filepath.Join(dir, file))
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished.Name()))
	}
	return nil
}

// Attach returns the addresses of the servers that run in dir. It returns an error that wraps
// [ErrNotRunning] if no server runs there; the announcement of a killed process does not count.
func Attach(dir string) (Announcement, error) {
	a, err := read(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Announcement{}, fmt.Errorf("%s: %w", dir, ErrNotRunning)
	case err != nil:
		return Announcement{}, err
	case !alive(a.PID):
		return Announcement{}, fmt.Errorf("%s: %w (process %d has ended)", dir, ErrNotRunning, a.PID)
	}
	return a, nil
}

func read(dir string) (Announcement, error) {
	name := filepath.Join(dir, announcementFile)
	text, err := os.ReadFile(name)
	if err != nil {
		return Announcement{}, err
	}
	var a Announcement
	if err := json.Unmarshal(text, &a); err != nil {
		return Announcement{}, fmt.Errorf("%s is not valid JSON: remove it", name) // err could quote a password
	}
	return a, nil
}

// alive reports whether a process with this pid runs, of any user.
func alive(pid int) bool {
	if pid <= 0 || reserve.IsZombie(pid) {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	return !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
