package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file in docs/alarms.md is valid.
func TestAlarmsInDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/alarms.md")
	if err != nil {
		t.Fatal(err)
	}
	_, yaml, _ := strings.Cut(string(text), "```yaml\n")
	yaml, _, _ = strings.Cut(yaml, "```")
	dir := t.TempDir()
	for name, secret := range map[string]string{"mail": "secret", "hook": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "alarms.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(yaml, "/run/secrets", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, _, err := readAlarms(newApp(), file); err != nil || len(f.Receivers) != 3 {
		t.Errorf("%d receivers, %v", len(f.Receivers), err)
	}
}
