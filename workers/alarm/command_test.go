package alarm_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/workers/alarm"
)

// A command gets the message on its stdin, word for word, and nothing of it is ever a command line
// or a secret of this process.
func TestCommand(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://hush")
	dir := t.TempDir()
	script := file(t, "page", `cat > "$1/stdin"; env > "$1/env"; echo "$#" > "$1/arguments"`)
	r := alarm.Receiver{Name: "pager", Command: []string{"sh", script, dir}}
	want := alarm.Message{Alarm: "pager/1", Items: []alarm.Item{{Text: "$(touch owned); `id`", Groups: []alarm.Group{{Error: "\"; rm -rf /\n\x00"}}}}}
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
	r := alarm.Receiver{Name: "pager", Command: []string{"sh", "-c", "yes noise | head -c 100000; echo 'no \033[31mline' >&2; exit 3"}}
	err := r.Send(t.Context(), alarm.Message{})
	if err == nil || !strings.HasPrefix(err.Error(), "exit status 3: ") || !strings.HasSuffix(err.Error(), `no \x1b[31mline`) || len(err.Error()) > 4096 {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r.Command = []string{"sh", "-c", "sleep 1000"}
	if err := r.Send(ctx, alarm.Message{}); err == nil {
		t.Error("a command that hangs was waited for")
	}
}
