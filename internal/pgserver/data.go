package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
)

// initialize makes the data. It goes to its place when complete, so that what
// an interrupted initdb leaves is never started.
func initialize(ctx context.Context, s *Server) error {
	if err := s.setPassword(rand.Text()); err != nil {
		return err
	}
	return s.makeData(func(data string) error {
		args := []string{
			"--pgdata=" + data, "--username=" + superuser, "--pwfile=" + s.path("password"),
			"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C",
		}
		if s.config.NoSync {
			args = append(args, "--no-sync")
		}
		return s.run(ctx, "initdb", args...)
	})
}

// setPassword writes the password down, where initdb can read it.
func (s *Server) setPassword(password string) error {
	s.password = password
	if err := os.WriteFile(s.path("password"), []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	return s.account.own(s.path("password"))
}

// makeData lets fill write a data directory and puts it in its place.
func (s *Server) makeData(fill func(data string) error) error {
	unfinished := s.path("data.unfinished")
	if err := errors.Join(os.RemoveAll(unfinished), os.Mkdir(unfinished, 0o700), s.account.own(unfinished)); err != nil {
		return err
	}
	if err := fill(unfinished); err != nil {
		return err
	}
	return os.Rename(unfinished, s.path("data"))
}

// arguments are the server's settings. On the command line they hold against
// the files in the data directory, which may come from an earlier version of
// this program or from another server.
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
