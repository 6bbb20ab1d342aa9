package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/webhooks"
)

// A file of receivers that is empty, as a failed template leaves it, is refused: it would end all alarms and webhooks.
func TestEmptyFilesOfReceiversAreRefused(t *testing.T) {
	t.Parallel()
	for what, parse := range map[string]func([]byte) error{
		"alarms":   func(text []byte) error { _, err := alarm.Parse(text); return err },
		"webhooks": func(text []byte) error { _, err := webhooks.Parse(text); return err },
	} {
		for _, text := range []string{"", "\n", "# a comment\n", "---\n", "null", "{}", "[]", "receivers:\n",
			"receivers: []\n", "receivers: null\n"} {
			file := filepath.Join(t.TempDir(), "receivers.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			json, err := newApp().readJSON(file)
			if err == nil {
				err = parse(json)
			}
			if err == nil || !strings.Contains(err.Error(), "receivers") && !strings.Contains(err.Error(), what) {
				t.Errorf("%s, %q: %v", what, text, err)
			}
		}
	}
}
