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

// initialize makes the data directory with initdb.
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

// setPassword sets the password and writes it into the file that initdb reads.
func (s *Server) setPassword(password string) error {
	s.password = password
	if err := os.WriteFile(s.path("password"), []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	return s.account.chown(s.path("password"))
}

// makeData makes the data directory with fill. It renames the directory when it is complete, so that
// no server starts on what an interrupted fill has left.
func (s *Server) makeData(fill func(data string) error) error {
	unfinished := s.path("data.unfinished")
	err := errors.Join(os.RemoveAll(unfinished), os.Mkdir(unfinished, 0o700), s.account.chown(unfinished))
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
