//go:build unix

package pgserver_test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/taskledger/taskledger/internal/pgserver"
)

// replaceByLinks replaces the files of a server's directory by links, as its user. An SQL superuser can run it by
// COPY TO PROGRAM.
const replaceByLinks = `cd "$1" || exit
for name in password log log.old lock alive; do
	rm -f $name
	ln -s "$2" $name
done
rm -rf data
true`

// The server's user cannot make root write into a file of root, or give it away.
func TestLinksOfTheServersUserAreNotFollowed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root starts the server as another user")
	}
	const secret = "a file of root"
	for _, test := range []struct {
		name  string
		ready func(dir string) error // before the attack
	}{
		{"own directory", func(string) error { return nil }},
		// The directories of earlier versions belonged to the server's user.
		{"earlier directory", func(dir string) error {
			info, err := os.Stat(filepath.Join(dir, "data"))
			if err != nil {
				return err
			}
			return giveAway(dir, info)
		}},
		{"directory for all", func(dir string) error { return os.Chmod(dir, 0o777) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			public := publicDir(t)
			victim := filepath.Join(public, "victim")
			if err := os.WriteFile(victim, []byte(secret), 0o600); err != nil {
				t.Fatal(err)
			}
			before, err := os.Stat(victim)
			if err != nil {
				t.Fatal(err)
			}
			config := pgserver.Config{Dir: filepath.Join(public, "postgres"), NoSync: true}
			s := start(t, config)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := test.ready(s.Dir()); err != nil {
				t.Fatal(err)
			}
			replace := s.Beside("/bin/sh", "-c", replaceByLinks, "sh", s.Dir(), victim)
			if out, err := replace.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}

			again, err := pgserver.Start(within(t), config)
			if err == nil {
				t.Error("the server started on a directory that its user has damaged")
				again.Close()
			} else if test.name != "own directory" && !strings.Contains(err.Error(), "run: chown root "+s.Dir()) {
				t.Errorf("got %v, want an error with the cure", err)
			}
			after, err := os.Stat(victim)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(victim); err != nil || string(text) != secret {
				t.Errorf("the file was overwritten: %q, %v", text, err)
			}
			if !sameOwner(before, after) || before.Mode() != after.Mode() {
				t.Errorf("the file was given away: %v", after.Mode())
			}
		})
	}
}

// A directory of an earlier version is used again after the cure that the error names.
func TestCureOfAnEarlierDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root starts the server as another user")
	}
	config := pgserver.Config{Dir: filepath.Join(publicDir(t), "postgres"), NoSync: true}
	s := start(t, config)
	exec(t, s, makeNotes+"; insert into note (word) values ('kept')")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(s.Dir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "password"} {
		if err := giveAway(filepath.Join(s.Dir(), name), info); err != nil {
			t.Fatal(err)
		}
	}
	_, err = pgserver.Start(within(t), config)
	if err == nil {
		t.Fatal("the directory of an earlier version was accepted")
	}
	_, cure, _ := strings.Cut(err.Error(), "run: ")
	if out, err := osexec.Command("/bin/sh", "-c", cure).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cure, err, out)
	}
	if got := query(t, start(t, config), readNotes); got != "kept" {
		t.Errorf("notes are %q", got)
	}
}

// giveAway makes the owner of a file the owner of another one, by name.
func giveAway(name string, like os.FileInfo) error {
	stat := like.Sys().(*syscall.Stat_t)
	return os.Chown(name, int(stat.Uid), int(stat.Gid))
}

// sameOwner reports whether two files have the same owner and group.
func sameOwner(a, b os.FileInfo) bool {
	x, y := a.Sys().(*syscall.Stat_t), b.Sys().(*syscall.Stat_t)
	return x.Uid == y.Uid && x.Gid == y.Gid
}
