package alarm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/alarm"
)

// A command gets the message on its stdin unchanged. No part of the message is an argument, and its environment has
// no secret of this process.
func TestCommand(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://hush")
	dir := t.TempDir()
	script := file(t, "page", `cat > "$1/stdin"; env > "$1/env"; echo "$#" > "$1/arguments"`)
	r := alarm.Receiver{Name: "pager", Command: []string{"sh", script, dir}}
	want := alarm.Message{Alarm: "pager/1", Items: []alarm.Item{{
		Text: "$(touch owned); `id`", Groups: []alarm.Group{{Error: "\"; rm -rf /\n\x00"}},
	}}}
	if err := r.Send(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var have alarm.Message
	if err := json.Unmarshal([]byte(read("stdin")), &have); err != nil {
		t.Fatal(err)
	}
	if have.Items[0].Text != want.Items[0].Text || have.Items[0].Groups[0].Error != want.Items[0].Groups[0].Error {
		t.Errorf("stdin %+v", have)
	}
	if env := read("env"); strings.Contains(env, "hush") || !strings.Contains(env, "TASKLEDGER_ALARM=pager/1\n") {
		t.Errorf("environment %s", env)
	}
	if n := strings.TrimSpace(read("arguments")); n != "1" {
		t.Errorf("%s arguments", n)
	}
}

func TestCommandFails(t *testing.T) {
	t.Parallel()
	const script = "yes noise | head -c 100000; echo 'no \033[31mline' >&2; exit 3"
	r := alarm.Receiver{Name: "pager", Command: []string{"sh", "-c", script}}
	err := r.Send(t.Context(), alarm.Message{})
	if err == nil || !strings.HasPrefix(err.Error(), "exit status 3: ") || len(err.Error()) > 4096 {
		t.Fatalf("error %v", err)
	}
	if !strings.HasSuffix(err.Error(), `no \x1b[31mline`) {
		t.Errorf("error %v", err)
	}
}

// A command that hangs is killed with the processes that it has started.
func TestCommandHangs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	path := filepath.Join(t.TempDir(), "child")
	const script = `sleep 1000 & echo $! > "$1.new"; mv "$1.new" "$1"; wait`
	r := alarm.Receiver{Name: "pager", Command: []string{"sh", "-c", script, "sh", path}}
	sent := make(chan error, 1)
	go func() { sent <- r.Send(ctx, alarm.Message{}) }()
	b := &bundle{t: t}
	b.await("the child", func() bool { _, err := os.Stat(path); return err == nil })
	cancel()
	if err := <-sent; err == nil {
		t.Error("the delivery by a command that hangs succeeded")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	b.await("its end", func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err != nil || strings.Contains(string(state), ") Z ") // a zombie has ended too
	})
}
