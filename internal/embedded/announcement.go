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
)

// announcementFile is the name of the file in the data directory.
const announcementFile = "server.json"

// ErrNotRunning says that no servers run in a data directory.
var ErrNotRunning = errors.New("no server is running there")

// Announcement is what servers that run tell those who want to attach to them. The addresses
// hold password and token, so the file is readable by its owner only.
type Announcement struct {
	PID         int       `json:"pid"` // of the process that the servers end with
	DatabaseURL string    `json:"database_url"`
	NATSURL     string    `json:"nats_url"`
	StartedAt   time.Time `json:"started_at"`
}

// Announce writes the addresses of servers of this process into dir, which is made if it does not
// exist. Withdraw removes them, unless they are somebody else's by then.
func Announce(dir, databaseURL, natsURL string) (withdraw func() error, err error) {
	a := Announcement{PID: os.Getpid(), DatabaseURL: databaseURL, NATSURL: natsURL, StartedAt: time.Now().UTC()}
	if err := writeWhole(dir, announcementFile, a); err != nil {
		return nil, err
	}
	return func() error {
		there, err := read(dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && there.PID != a.PID {
			return nil
		}
		return os.Remove(filepath.Join(dir, announcementFile))
	}, nil
}

// writeWhole writes a value as JSON into a file that only its owner may read, whole or not at all. It
// makes the directory if there is none.
func writeWhole(dir, file string, value any) error {
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

// Attach returns the addresses of the servers that run in dir, [ErrNotRunning] if there are none.
// What a killed process has left behind does not count.
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
		return Announcement{}, fmt.Errorf("%s is damaged: remove it", name) // the cause could quote a password
	}
	return a, nil
}

// alive reports whether a process of this number exists, be it another user's.
func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	return !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
