package alarm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
)

// runCommand runs a program with a [Message] as JSON on its stdin. It uses no shell, and no part of the message is an
// argument. The environment contains the usual variables, and the alarm's name and subject, but neither addresses nor
// passwords of this process. Any exit code but 0 is an error.
func runCommand(ctx context.Context, words []string, m Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdin = bytes.NewReader(text)
	output := &tail{}
	cmd.Stdout, cmd.Stderr = output, output
	killWithChildren(cmd)
	cmd.WaitDelay = time.Second // children may hold the pipes open
	cmd.Env = []string{"TASKLEDGER_ALARM=" + m.Alarm, "TASKLEDGER_ALARM_SUBJECT=" + m.Subject()}
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR", "SystemRoot"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("killed after %s: %w", timeout, ctx.Err())
	case err != nil:
		return fmt.Errorf("%w: %s", err, printable.Text(strings.TrimSpace(string(output.kept))))
	}
	return nil
}

// maxReply is the greatest part of a command's output that is recorded, in bytes.
const maxReply = 1 << 10

// tail is a writer that keeps the last maxReply bytes.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxReply):]...)
	t.kept = t.kept[max(0, len(t.kept)-maxReply):]
	return len(p), nil
}
