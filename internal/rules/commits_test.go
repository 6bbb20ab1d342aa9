package rules_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxSubject = 72 // characters: what a log of one line a commit shows
	// subjectsSince is the last commit whose subject may be longer, as some before it are.
	subjectsSince = "1c2390f4db4bb0ecf6f2d3dc8824c687e58cb611"
)

func TestSubjectsOfCommitsAreShort(t *testing.T) {
	t.Parallel()
	// A result of go test is reused until a file it has used changes: this file changes with each commit.
	_, _ = os.Stat(filepath.Join(root, ".git/logs/HEAD"))
	long, err := longSubjects(root, subjectsSince)
	if err != nil {
		t.Skipf("no history since %.8s here: %s", subjectsSince, err)
	}
	for _, commit := range long {
		t.Errorf("the subject has more than %d characters: %s", maxSubject, commit)
	}
}

// longSubjects returns the commits of a checkout since a commit, except merges, whose subjects are too long. It returns
// an error if the directory is not a checkout, or its history does not contain that commit.
func longSubjects(directory, since string) (long []string, err error) {
	command := exec.Command("git", "log", "--no-merges", "--format=%h %s", since+"..HEAD", "--")
	command.Dir = directory
	log, err := command.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, log)
	}
	for commit := range strings.Lines(string(log)) {
		commit = strings.TrimSuffix(commit, "\n")
		if _, subject, _ := strings.Cut(commit, " "); utf8.RuneCountInString(subject) > maxSubject {
			long = append(long, commit)
		}
	}
	return long, nil
}

func TestSubjectsOfCommitsAreShortFinds(t *testing.T) {
	t.Parallel()
	full, shallow := filepath.Join(t.TempDir(), "full"), filepath.Join(t.TempDir(), "shallow")
	git := func(args ...string) string {
		t.Helper()
		author := []string{"-c", "user.name=a", "-c", "user.email=a@example.org"}
		command := exec.Command("git", append(author, args...)...)
		command.Dir = full
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %s: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	commit := func(subject string) string {
		git("commit", "-q", "--allow-empty", "-m", subject+"\n\n"+strings.Repeat("The body may be longer. ", 10))
		return git("rev-parse", "HEAD")
	}
	if err := os.Mkdir(full, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := longSubjects(full, strings.Repeat("1", 40)); err == nil {
		t.Error("no error outside a checkout")
	}
	git("init", "-q")
	commit(strings.Repeat("a", maxSubject+9))
	since := commit(strings.Repeat("b", maxSubject+1))
	commit(strings.Repeat("ä", maxSubject))
	git("checkout", "-q", "-b", "other", since)
	commit("c")
	git("merge", "-q", "--no-ff", "-m", strings.Repeat("d", maxSubject+1), "@{-1}")
	if long, err := longSubjects(full, since); len(long) > 0 || err != nil {
		t.Errorf("found %q, %v in short subjects", long, err)
	}
	last := strings.Repeat("é", maxSubject+1)
	commit(last)
	if long, err := longSubjects(full, since); len(long) != 1 || !strings.HasSuffix(long[0], " "+last) || err != nil {
		t.Errorf("found %q, %v, want the subject of é", long, err)
	}
	git("clone", "-q", "--depth", "1", "file://"+full, shallow)
	if _, err := longSubjects(shallow, since); err == nil {
		t.Error("no error in a clone without the commit")
	}
}
