package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// initialize makes the data directory with initdb.
func initialize(ctx context.Context, s *Server) error {
	if err := s.setPassword(rand.Text()); err != nil {
		return err
	}
	return s.makeData(s.initdb(ctx))
}

// initdb returns the function that fills a data directory with a new cluster, with the server's password.
func (s *Server) initdb(ctx context.Context) func(data string) error {
	return func(data string) error {
		args := []string{
			"--pgdata=" + data, "--username=" + superuser, "--pwfile=" + s.path("password"),
			"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C",
		}
		if s.config.NoSync {
			args = append(args, "--no-sync")
		}
		return s.run(ctx, "initdb", args...)
	}
}

// setPassword sets the password and writes it into the file that initdb reads.
func (s *Server) setPassword(password string) error {
	s.password = password
	file, err := create(s.path("password"))
	if err != nil {
		return err
	}
	_, err = file.WriteString(password + "\n")
	return errors.Join(err, s.account.letRead(file), file.Close())
}

// readPassword reads the password of the data that exists.
func (s *Server) readPassword() error {
	file, err := os.OpenFile(s.path("password"), os.O_RDONLY|noFollow, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it is only read
	text, err := io.ReadAll(file)
	s.password = strings.TrimSpace(string(text))
	return err
}

// create creates a file with mode 0600. It replaces a file or a link of this name, and follows no link.
func create(name string) (*os.File, error) {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
}

// makeData makes the data directory with fill. It renames the directory when it is complete, so that no server starts
// on an incomplete directory.
func (s *Server) makeData(fill func(data string) error) error {
	unfinished := s.path("data.unfinished")
	err := errors.Join(os.RemoveAll(unfinished), os.Mkdir(unfinished, 0o700), s.account.own(unfinished))
	if err != nil {
		return err
	}
	if err := fill(unfinished); err != nil {
		return err
	}
	return os.Rename(unfinished, s.path("data"))
}

// arguments returns the server's settings as command-line arguments. Those override the files in the
// data directory, which may be from an earlier version of this program or from another server.
func (s *Server) arguments() []string {
	settings := map[string]string{"max_connections": "200", "timezone": "UTC", "log_timezone": "UTC"}
	if s.config.NoSync {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	maps.Copy(settings, s.config.Settings)
	settings["listen_addresses"] = "127.0.0.1"
	settings["port"] = strconv.Itoa(s.port)
	settings["unix_socket_directories"] = ""
	args := []string{"-D", s.path("data")}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}
