package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/webhook"
)

// The file in docs/webhooks.md is valid.
func TestWebhooksInDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, yaml, _ := strings.Cut(string(text), "```yaml\n")
	yaml, _, _ = strings.Cut(yaml, "```")
	dir := t.TempDir()
	secret := []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	if err := os.WriteFile(filepath.Join(dir, "shop"), secret, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "webhooks.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(yaml, "/run/secrets", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	json, err := newApp().readJSON(file)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := webhook.Parse(json); err != nil || len(f.Receivers) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}
