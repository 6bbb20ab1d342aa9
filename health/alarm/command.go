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

// runCommand runs a program with a [Message] as JSON on its stdin. No shell is between, and nothing
// of the message is among its arguments. Of the environment it has what programs need, and the
// alarm's name and subject; not the addresses and passwords of this process. It must end with exit
// code 0.
func runCommand(ctx context.Context, words []string, m Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdin = bytes.NewReader(text)
	said := &tail{}
	cmd.Stdout, cmd.Stderr = said, said
	endWithChildren(cmd)
	cmd.WaitDelay = time.Second // for pipes that somebody still holds
	cmd.Env = []string{"TASKLEDGER_ALARM=" + m.Alarm, "TASKLEDGER_ALARM_SUBJECT=" + m.Subject()}
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR", "SystemRoot"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("ended after %s: %w", Timeout, ctx.Err())
	case err != nil:
		return fmt.Errorf("%w: %s", err, printable.Text(strings.TrimSpace(string(said.kept))))
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxSaid):]...)
	t.kept = t.kept[max(0, len(t.kept)-maxSaid):]
	return len(p), nil
}
